"""Turns of the event loop among long pieces of work: one step of one of them in each pass.

Such work is a large request, or what is left of many small ones that came at once. Leaves where a
step ends to the work (`broker_layer.handlers`, `quire.server.connection`), and small requests to
the loop.

Invariants: between two looks at the sockets at most one step of all these runs, so a small request
waits for one step at a time, however many large ones came on however many connections;
clients take turns, so the large request of one waits for a step or two of each other one. A request
is large from the start if its frame has LARGE_BYTES, any other one from when it first passes the
loop on.
"""

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Final

from quire.identity.fair_queue import FairQueue

LARGE_BYTES: Final = 8 * 1024
"""Size of a frame whose request is large: 250 partitions of a Fetch."""
LARGE_WAITING_MAX: Final = 10_000
"""Maximum number of large requests of one client that wait for a turn; a further one ends its
connection.
"""


class StepTurns:
    """The steps of the large requests of one event loop."""

    def __init__(self) -> None:
        self._turns = FairQueue(1, 1, LARGE_WAITING_MAX)

    async def run(
        self, holder: str, work: Coroutine[None, None, None], frame_bytes: int = 0
    ) -> None:
        """Run the work of a request, whose client is `holder`. Raises QueueFullError."""
        await self._stepped(holder, work, is_large=frame_bytes >= LARGE_BYTES)

    @coroutine
    def _stepped(
        self, holder: str, work: Coroutine[None, None, None], *, is_large: bool
    ) -> Generator[None, None, None]:
        failure: BaseException | None = None
        while True:
            if is_large:
                try:
                    yield from self._take(holder).__await__()
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is for the work
                    failure = error
            try:
                waits_for = work.send(None) if failure is None else work.throw(failure)
            except StopIteration:
                return
            failure = None
            is_large = is_large or waits_for is None  # a bare pass of the loop
            try:
                yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is for the work
                failure = error

    async def _take(self, holder: str) -> None:
        """Take the turn of this pass; the next one is another turn."""
        if not self._turns.take(holder):
            await self._turns.wait(holder)
        asyncio.get_running_loop().call_soon(self._turns.give_back, holder)

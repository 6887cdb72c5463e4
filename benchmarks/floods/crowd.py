"""Many bad clients at a time, each of which comes again when it was refused or cut.

Leaves what each of them does to its caller.

Invariant: a client comes again after COME_AGAIN_S at the earliest, so the rate is bounded.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from benchmarks.floods.flood_job import FloodRun
from quire.identity.errors import SecurityError

COME_AGAIN_S: Final = 0.5
SPREAD_S: Final = 0.5
"""Time in which all clients come."""

READ_BYTES: Final = 64 * 1024

Arrive = Callable[[], None]
Act = Callable[[Arrive], Awaitable[None]]
"""Connects, calls its argument once it is in its place, and returns or raises when it was cut."""


class Crowd:
    """The clients of one flood, until `run` is cancelled."""

    def __init__(self, run: FloodRun, rng: Random) -> None:
        self._counts = run.counts
        self._full = run.full
        self._rng = rng
        self._awaited = 0

    async def run(self, *acts: Act) -> None:
        """Let a client perform each act, again and again."""
        self._awaited = len(acts)
        async with asyncio.TaskGroup() as group:
            for act in acts:
                group.create_task(self._go_on(act))

    async def _go_on(self, act: Act) -> None:
        await asyncio.sleep(SPREAD_S * self._rng.random())
        is_first = True
        while True:
            has_arrived = False

            def arrive() -> None:
                nonlocal has_arrived, is_first
                has_arrived = True
                self._note_first(is_first=is_first)
                is_first = False

            self._counts.opened += 1
            with contextlib.suppress(OSError, EOFError, SecurityError):
                await act(arrive)
            self._counts.cut += has_arrived
            self._counts.refused += not has_arrived
            self._note_first(is_first=is_first)
            is_first = False
            await asyncio.sleep(COME_AGAIN_S * (1 + self._rng.random()))

    def _note_first(self, *, is_first: bool) -> None:
        self._awaited -= is_first
        if is_first and not self._awaited:
            self._full()


async def read_all(reader: asyncio.StreamReader) -> None:
    """Read what comes until the end."""
    with contextlib.suppress(OSError):
        while await reader.read(READ_BYTES):
            continue

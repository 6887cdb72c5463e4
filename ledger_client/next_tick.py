"""Calls in the loop's next turn what was asked for in this one, all of it by one handle.

Leaves what is called to whoever asks: a handle for each of a thousand ledgers would cost the loop
as much as sending their batches.

Invariants: whatever is asked for is called once, in the order of asking; an error of one is
reported to the loop, and keeps none of the others waiting.
"""

import asyncio
from collections.abc import Callable


class TurnCalls:
    """What a client's writers want to do in the next turn of their loop."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn."""
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._run)
        self._calls.append(call)

    def _run(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - it is reported, and the others are called
                what = {"message": "a call of this turn failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(what)

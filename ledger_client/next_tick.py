"""Calls for the next loop iteration, all made by one handle.

Leaves the calls to its users. A handle per ledger would, for a thousand ledgers, cost the loop as
much as sending their batches.

Invariants: each requested call is made once, in the order of the requests; an error of one call is
reported to the loop, and the others are still made.
"""

import asyncio
from collections.abc import Callable


class NextTick:
    """Calls that a client's writers want to make in the next loop iteration."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next loop iteration."""
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._run)
        self._calls.append(call)

    def _run(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - it is reported, and the others are called
                what = {"message": "a call for this loop iteration failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(what)

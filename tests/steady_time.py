"""Event loop in real time whose clock leaves out pauses of the process.

Leaves tests without threads, processes and sockets of their own to `tests.virtual_network`.

Invariant: between two looks for input the clock moves by STEP_S at most. A process that is not
scheduled for seconds so finds what arrived meanwhile before a timer of that time is due.
"""

import asyncio
import selectors
import time
from typing import Final

from typing_extensions import override  # `typing` has it from 3.12 on

Ready = list[tuple[selectors.SelectorKey, int]]

STEP_S: Final = 0.05


class _SteadySelector(selectors.DefaultSelector):
    """Selector that waits in short steps, and measures them."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._looked_s = time.monotonic()

    def time(self) -> float:
        """Return the seconds of the steps so far."""
        return self._now + min(STEP_S, time.monotonic() - self._looked_s)

    @override
    def select(self, timeout: float | None = None) -> Ready:
        self._now, self._looked_s = self.time(), time.monotonic()
        return super().select(STEP_S if timeout is None else min(timeout, STEP_S))


class SteadyTimeLoop(asyncio.SelectorEventLoop):
    """Event loop for tests that need the machine's clock."""

    def __init__(self) -> None:
        self._steady = _SteadySelector()
        super().__init__(self._steady)

    @override
    def time(self) -> float:
        return self._steady.time()

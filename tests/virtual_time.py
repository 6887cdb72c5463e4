"""Event loop whose clock jumps to the next timer when nothing else is to do.

Leaves faults to the tests: with this loop a timeout costs no time, and a busy machine changes
nothing. The clock stands still while the loop waits for a thread's result.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from typing_extensions import override  # `typing` has it from 3.12 on

ArgumentTs = TypeVarTuple("ArgumentTs")
ResultT = TypeVar("ResultT")
Ready = list[tuple[selectors.SelectorKey, int]]


class _JumpingSelector(selectors.DefaultSelector):
    """Selector that adds up the requested waits instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.working_count = 0
        """Number of threads whose results the loop waits for."""

    @override
    def select(self, timeout: float | None = None) -> Ready:
        is_working = self.working_count > 0 and (timeout is None or timeout > 0)
        ready = super().select(None if is_working else 0)
        if not ready:
            assert timeout is not None, "every task waits for another: this would hang"
            self.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop for tests without real input or output."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    @override
    def time(self) -> float:
        return self._jumping.now

    @override
    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[ArgumentTs]], ResultT],
        *args: *ArgumentTs,
    ) -> asyncio.Future[ResultT]:
        future = super().run_in_executor(executor, func, *args)
        self.note_work(future)
        return future

    def note_work(self, result: asyncio.Future[Any]) -> None:
        """Stop the clock until a thread's result is there."""
        self._jumping.working_count += 1
        result.add_done_callback(self._note_result)

    @override
    async def shutdown_default_executor(self, *limit: Any) -> None:
        self._jumping.working_count += 1  # a thread ends the others
        try:
            await super().shutdown_default_executor(*limit)
        finally:
            self._jumping.working_count -= 1

    def _note_result(self, _: object) -> None:
        self._jumping.working_count -= 1

    def advance(self, seconds: float) -> None:
        """Let time pass within a callback, as slow work does."""
        self._jumping.now += seconds

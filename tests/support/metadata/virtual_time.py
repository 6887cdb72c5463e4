"""Event loop whose clock jumps to the next timer when nothing else is to do.

Leaves faults to the tests: with this loop a timeout costs no time, and a busy machine changes
nothing.
"""

import asyncio
import selectors
from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override  # `typing` has it from 3.12 on

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Ready = list[tuple[selectors.SelectorKey, int]]


class _JumpingSelector(selectors.BaseSelector):
    """Selector that adds up the requested waits instead of waiting."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    @override
    def register(
        self, fileobj: "FileDescriptorLike", events: int, data: object = None
    ) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    @override
    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    @override
    def select(self, timeout: float | None = None) -> Ready:
        ready = self._real.select(0)
        if not ready:
            assert timeout is not None, "every task waits for another: this would hang"
            self.now += max(0.0, timeout)
        return ready

    @override
    def get_map(self) -> Mapping["FileDescriptorLike", selectors.SelectorKey]:
        return self._real.get_map()

    @override
    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop for tests without real input or output."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    @override
    def time(self) -> float:
        return self._jumping.now

    def advance(self, seconds: float) -> None:
        """Let time pass within a callback, as slow work does."""
        self._jumping.now += seconds

"""Lets one call be awaited or entered: `await client.open_ledger(7)`, `async with ...`.

Leaves the work to the coroutine that it is given, which starts only then.
"""

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar


class Handle(Protocol):
    """What can be entered: readers and writers."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


HandleT = TypeVar("HandleT", bound=Handle)


class Opening(Generic[HandleT]):
    """A handle about to be opened."""

    def __init__(self, open_handle: Callable[[], Coroutine[Any, Any, HandleT]]) -> None:
        self._open = open_handle
        self._handle: HandleT | None = None

    def __await__(self) -> Generator[Any, None, HandleT]:
        """Open the handle; closing it is then the caller's."""
        return self._open().__await__()

    async def __aenter__(self) -> HandleT:
        """Open the handle for the length of a block."""
        assert self._handle is None, "one block per call"
        self._handle = await self._open()
        return await self._handle.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the handle in its own manner."""
        handle, self._handle = self._handle, None
        assert handle is not None, "entered before"
        await handle.__aexit__(kind, error, traceback)

"""Result of a call that can be awaited or entered: `await client.open_ledger(7)`, `async with ...`.

Leaves the work to the given coroutine, which starts only then.
"""

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

HandleT = TypeVar("HandleT", bound=AbstractAsyncContextManager[object])


class AwaitableHandle(Generic[HandleT]):
    """A handle that is about to be opened."""

    def __init__(self, open_handle: Callable[[], Coroutine[Any, Any, HandleT]]) -> None:
        self._open = open_handle
        self._handle: HandleT | None = None

    if not TYPE_CHECKING:  # type checkers report unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError for a use before the handle is open."""
            if name.startswith("__"):
                raise AttributeError(name)
            raise AttributeError(
                f"the ledger is not open yet, so it has no {name!r}: write `await` before the call "
                "that opens it, or `async with ... as ledger`"
            )

    def __await__(self) -> Generator[Any, None, HandleT]:
        """Open the handle; the caller must close it."""
        return self._open().__await__()

    async def __aenter__(self) -> HandleT:
        """Open the handle for the duration of a block."""
        assert self._handle is None, "one block per call"
        self._handle = await self._open()
        await self._handle.__aenter__()
        return self._handle

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the handle as it defines."""
        handle, self._handle = self._handle, None
        assert handle is not None, "entered before"
        await handle.__aexit__(kind, error, traceback)

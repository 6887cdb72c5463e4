"""What a client, and its writers, readers and chains, have in common.

Leaves the checks of the event loop and of a forked child to `own_loop.py`.

Invariants: a description has no password, no key and no payload; a handle is never copied.

Source: api design, "Client".
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar


class Handle(ABC):
    """A handle of one process."""

    @abstractmethod
    def _description(self) -> str:
        """Return what `repr` says of it."""

    # (`typing.override` needs Python 3.12.)
    def __repr__(self) -> str:  # type: ignore[explicit-override]
        return f"<{type(self).__name__} {self._description()}>"

    def __reduce__(self) -> NoReturn:  # type: ignore[explicit-override]
        """Raise TypeError: another process, or a copy, cannot use its connections."""
        raise TypeError(
            f"{self!r} can be neither pickled nor copied, because its connections belong to this "
            "process: pass the metadata URI and ledger ids, and create a client there"
        )

    def _warn_dropped(self) -> None:
        """Warn that this handle is gone and was not closed."""
        text = f"{self!r} was dropped and is not closed: use `with`, or close it"
        warnings.warn(text, ResourceWarning, stacklevel=3, source=self)


def ledger_text(ledger_id: int, last_confirmed: int, *, is_open: bool) -> str:
    """Return the description of the handle of a ledger."""
    state = "open" if is_open else "closed"
    return f"of ledger {ledger_id}, last confirmed {last_confirmed}, {state}"


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

"""What a client, and its writers, readers and chains, have in common; and the check that a handle
is used only in the event loop and in the process that created it.

In another loop, or from another thread, a call would wait for ever for a result that wakes the
handle's own loop. After a fork, the connections belong to the parent.

Invariants: a description has no password, no key and no payload; a handle is never copied. The
check costs one comparison of the running loop, which a forked child does not have or has created
itself; a refused call starts nothing and touches no task of the handle's loop.

Source: api design, "Client".
"""

import asyncio
import os
import warnings
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar

from ledger_client.errors import ClientClosedError
from metadata.ids import LedgerId


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


ParametersT = ParamSpec("ParametersT")
ItemT = TypeVar("ItemT")

running_loop = asyncio._get_running_loop  # noqa: SLF001 - without an exception if there is none


class ForkGuard:
    """Process in which a handle was created."""

    def __init__(self, what: str, ledger_id: LedgerId | None = None) -> None:
        self._what = what
        self._ledger_id = ledger_id
        self._process_id = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that created the handle."""
        return self._process_id != os.getpid()

    def require_process(self) -> None:
        """Raise ClientClosedError in any other process."""
        if self.is_forked:
            raise self._refusal("was created before a fork: create a client in this process")

    def _refusal(self, why: str) -> ClientClosedError:
        return ClientClosedError(f"this {self._what} {why}", ledger_id=self._ledger_id)


class LoopGuard(ForkGuard):
    """Event loop in which a handle was created; with `loop` None, the one of its first use."""

    def __init__(
        self, what: str, ledger_id: LedgerId | None, loop: AbstractEventLoop | None
    ) -> None:
        super().__init__(what, ledger_id)
        self._loop = loop

    @property
    def is_alive(self) -> bool:
        """Whether the loop is of this process, and not closed."""
        return not self.is_forked and self._loop is not None and not self._loop.is_closed()

    def require(self) -> None:
        """Raise ClientClosedError in any other loop, without a loop, and in any other process."""
        if running_loop() is not self._loop or self._loop is None:
            self._bind_or_refuse()

    def _bind_or_refuse(self) -> None:
        self.require_process()
        own, here = self._loop, running_loop()
        if own is None:
            self._loop = asyncio.get_running_loop()
        elif own.is_closed():
            raise self._refusal(
                f"belongs to the event loop {_name(own)}, which is closed: create a client in the "
                "running loop"
            )
        elif here is None:
            raise self._refusal(
                f"belongs to the event loop {_name(own)}, and was called where no loop runs: await "
                "it in its loop, or use the client of `ledger_client.sync`, for any thread"
            )
        else:
            raise self._refusal(
                f"belongs to another event loop, {_name(own)}, than the running one, "
                f"{_name(here)}: create a client in each loop, or use the client of "
                "`ledger_client.sync`, for any thread"
            )


class LoopBound(Protocol):
    """Handle that belongs to a loop."""

    @property
    def _own_loop(self) -> LoopGuard:
        """Check of the handle's loop."""
        ...


OwnedT = TypeVar("OwnedT", bound=LoopBound)


def in_own_loop(
    method: Callable[Concatenate[OwnedT, ParametersT], AsyncGenerator[ItemT, None]],
) -> Callable[Concatenate[OwnedT, ParametersT], AsyncGenerator[ItemT, None]]:
    """Decorate a method that is an asynchronous generator: no other loop can resume it."""

    @wraps(method)
    def begin(
        handle: OwnedT, /, *args: ParametersT.args, **options: ParametersT.kwargs
    ) -> AsyncGenerator[ItemT, None]:
        return _OwnItems(method(handle, *args, **options), handle._own_loop)  # noqa: SLF001

    return begin


class _OwnItems(AsyncGenerator[ItemT, None]):
    """Asynchronous generator that checks the loop before it resumes another one."""

    def __init__(self, items: AsyncGenerator[ItemT, None], own_loop: LoopGuard) -> None:
        self._items = items
        self._own_loop = own_loop

    def __iter__(self) -> NoReturn:
        """Raise TypeError for a loop without `async`."""
        raise TypeError(
            "these items are asynchronous: write `async for`, or use `ledger_client.sync`, whose "
            "iterators need none"
        )

    # (`typing.override` needs Python 3.12.)
    def __anext__(self) -> Coroutine[Any, Any, ItemT]:  # type: ignore[explicit-override]
        self._own_loop.require()
        return self._items.__anext__()

    def asend(self, value: None) -> Coroutine[Any, Any, ItemT]:  # type: ignore[explicit-override]
        self._own_loop.require()
        return self._items.asend(value)

    def athrow(self, *error: Any) -> Coroutine[Any, Any, ItemT]:  # type: ignore[explicit-override]
        self._own_loop.require()
        return self._items.athrow(*error)

    def aclose(self) -> Coroutine[Any, Any, None]:  # type: ignore[explicit-override]
        self._own_loop.require()
        return self._items.aclose()


def _name(loop: AbstractEventLoop) -> str:
    return f"{type(loop).__name__} at {id(loop):#x}"

"""Registry of change callbacks.

Leaves what is reported, and when, to its owner.

Invariants: a callback that is cancelled during a notification runs at most once more; one that is
added during a notification runs from the next one on; a callback that raises affects neither the
others nor the owner.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVarTuple

from metadata.store.interface import Cancel

Arguments = TypeVarTuple("Arguments")


@dataclass(slots=True, eq=False)
class _Registered(Generic[*Arguments]):
    call: Callable[[*Arguments], None]
    has_failed: bool = False


class Callbacks(Generic[*Arguments]):
    """Callbacks for one kind of change, in the order in which they were added."""

    __slots__ = ("_registered",)

    def __init__(self) -> None:
        self._registered: dict[_Registered[*Arguments], None] = {}

    def add(self, callback: Callable[[*Arguments], None]) -> Cancel:
        """Register a callback; return a function that removes it and may be called repeatedly."""
        registered = _Registered(callback)
        self._registered[registered] = None

        def cancel() -> None:
            self._registered.pop(registered, None)

        return cancel

    @property
    def is_empty(self) -> bool:
        """Whether no callback is registered."""
        return not self._registered

    def notify(self, *arguments: *Arguments) -> None:
        """Call all callbacks. The first exception of each callback is reported to the event loop,
        which logs it; later ones are not.
        """
        for registered in tuple(self._registered):
            try:
                registered.call(*arguments)
            except Exception as error:  # noqa: BLE001 - it is reported, and the others run
                if not registered.has_failed:
                    registered.has_failed = True
                    what = {"message": f"callback {registered.call} failed", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(what)

"""Registry of change callbacks.

Leaves what is reported, and when, to its owner.

Invariants: a callback that is cancelled during a notification runs at most once more; one that is
added during a notification runs from the next one on; a callback that raises does not keep the
others from running.
"""

from collections.abc import Callable
from typing import Generic, TypeVarTuple

from metadata.store.interface import Cancel

Arguments = TypeVarTuple("Arguments")


class Callbacks(Generic[*Arguments]):
    """Callbacks for one kind of change, in the order in which they were added."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[*Arguments], None]] = {}
        self._count = 0

    def add(self, callback: Callable[[*Arguments], None]) -> Cancel:
        """Register a callback; return a function that removes it and may be called repeatedly."""
        self._count += 1
        number = self._count
        self._callbacks[number] = callback

        def cancel() -> None:
            self._callbacks.pop(number, None)

        return cancel

    def notify(self, *arguments: *Arguments) -> None:
        """Call all callbacks, then raise the first exception that one of them raised."""
        failure: Exception | None = None
        for callback in list(self._callbacks.values()):
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001 - raised once the others have run
                failure = failure or error
        if failure is not None:
            raise failure

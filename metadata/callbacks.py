"""Keeps who wants to hear of something, and tells them.

Leaves what there is to tell, and when, to its owner.

Invariants: who cancels while others are told is told at most this once more; who comes then is told
from the next time on; a failure of one keeps none of the others from hearing.
"""

from collections.abc import Callable
from typing import Generic, TypeVarTuple

from metadata.store.interface import Cancel

Told = TypeVarTuple("Told")


class Callbacks(Generic[*Told]):
    """The callbacks for one kind of news, in the order in which they came."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[*Told], None]] = {}
        self._count = 0

    def add(self, callback: Callable[[*Told], None]) -> Cancel:
        """Call back from now on; return what ends that, also when it is called again."""
        self._count += 1
        number = self._count
        self._callbacks[number] = callback

        def cancel() -> None:
            self._callbacks.pop(number, None)

        return cancel

    def tell(self, *told: *Told) -> None:
        """Call all of them; then raise the first that any of them raised."""
        failure: Exception | None = None
        for callback in list(self._callbacks.values()):
            try:
                callback(*told)
            except Exception as error:  # noqa: BLE001 - it is raised, once the others have heard
                failure = failure or error
        if failure is not None:
            raise failure

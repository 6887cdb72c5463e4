"""Registry of Fetches that wait for the progress of logs.

Leaves what a Fetch does after the wait to `fetch`.

Invariants: a log has one callback however many Fetches wait for it, and none when no Fetch waits;
a wait that has ended is not called.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from broker_layer.server.ports import PartitionLog


@dataclass(slots=True)
class _Watched:
    """One log that Fetches wait for."""

    log: PartitionLog
    cancel: Callable[[], None]
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)


class FetchWaits:
    """Waiting Fetches by log; belongs to one event loop."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}

    def wait(self, log: PartitionLog, wait_id: int, moved: Callable[[], None]) -> None:
        """Call `moved` after every progress of the log, until `end`."""
        key = id(log)  # the reference to the log keeps this id unique
        watched = self._watched.get(key)
        if watched is None:
            watched = _Watched(log, log.on_progress(lambda: self._moved(key)))
            self._watched[key] = watched
        watched.waiting[wait_id] = moved

    def end(self, log: PartitionLog, wait_id: int) -> None:
        """End a wait; do nothing if there is none."""
        watched = self._watched.get(id(log))
        if watched is None:
            return
        watched.waiting.pop(wait_id, None)
        if not watched.waiting:
            del self._watched[id(log)]
            watched.cancel()

    def _moved(self, key: int) -> None:
        watched = self._watched.get(key)
        if watched is not None:
            for moved in list(watched.waiting.values()):
                moved()

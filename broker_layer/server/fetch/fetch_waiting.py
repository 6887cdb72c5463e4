"""Wakes Fetches that wait for records, by the partitions that they wait for.

Leaves what a Fetch does then to `fetch`.

Invariants: a log is watched once however many Fetches wait for it, and no longer than any does; a
wait that was ended is called no more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from broker_layer.server.ports import ServedLog


@dataclass(slots=True)
class _Watched:
    """One log that Fetches wait for."""

    log: ServedLog
    cancel: Callable[[], None]
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)


class FetchWaits:
    """Who waits for which log; belongs to one event loop."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}

    def wait(self, log: ServedLog, wait_id: int, moved: Callable[[], None]) -> None:
        """Have `moved` called whenever the log has moved, until `end`."""
        key = id(log)  # the log is held, so nothing else can have this id meanwhile
        watched = self._watched.get(key)
        if watched is None:
            watched = _Watched(log, log.on_progress(lambda: self._moved(key)))
            self._watched[key] = watched
        watched.waiting[wait_id] = moved

    def end(self, log: ServedLog, wait_id: int) -> None:
        """Wait no more; nothing if there was no wait."""
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

"""Histories of the faults of a run, from which it follows whether an error had a cause."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from metadata.ids import BookieId
from metadata.paths import BOOKIES, bookie_path
from metadata.registry.registration import REGISTRATION_CODEC
from metadata.store.ephemeral import unpack_held
from metadata.store.memory import MemoryMetadataServer
from metadata.store.memory_tree import NodeChange
from tests.simulation.availability.decision import FaultTime

if TYPE_CHECKING:
    from tests.simulation.nodes import BookieNode


KEPT_S: Final = 400.0
"""More than every time limit that ends an operation, and every bound after healing."""
DROPPED_AT: Final = 256
SLOW_S: Final = 0.2
"""Delay of one message or request that counts as a fault, in seconds: every time limit and every
suspicion is longer.
"""


class FaultHistory:
    """History of the faults of a run: which part had one, from when until when.

    Invariant: a fault that ended more than `KEPT_S` ago is dropped, so that a long run stays
    small.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._faults: list[FaultTime] = []
        self._drop_at = DROPPED_AT

    def begin(self, part: str) -> FaultTime:
        """Record that a fault begins."""
        fault = FaultTime(part, self._now())
        self._faults.append(fault)
        if len(self._faults) >= self._drop_at:
            since = self._now() - KEPT_S
            self._faults = [time for time in self._faults if time.ended >= since]
            self._drop_at = 2 * len(self._faults) + DROPPED_AT
        return fault

    def end(self, fault: FaultTime | None) -> None:
        """Record that a fault ends; does nothing for one that has ended."""
        if fault is not None:
            fault.ended = min(fault.ended, self._now())

    def add(self, part: str, seconds: float = 0.0) -> None:
        """Record a fault that ends after a time."""
        self.begin(part).ended = self._now() + seconds

    def note_delay(self, part: str, delay_s: float) -> None:
        """Record a delay, unless it is too short to have an effect."""
        if delay_s >= SLOW_S:
            self.add(part, delay_s)

    @contextmanager
    def lasting(self, part: str) -> Iterator[None]:
        """Record a fault that lasts as long as the block."""
        fault = self.begin(part)
        try:
            yield
        finally:
            self.end(fault)

    def recent(self) -> list[FaultTime]:
        """Return the faults that last or ended within `KEPT_S`, in the order of their begin."""
        since = self._now() - KEPT_S
        return [fault for fault in self._faults if fault.ended >= since]


class BookieStates:
    """Times in which a bookie cannot be used by any client, as faults of its host.

    Invariant: a bookie can be used while its process serves, is not about to stop, and is
    registered as writable by its present session. Every change is seen in the step in which it
    happens.

    Source: protocol rules 2.5, 4.3 and 5.6.
    """

    def __init__(
        self,
        server: MemoryMetadataServer,
        history: FaultHistory,
        bookies: Sequence["BookieNode"],
    ) -> None:
        self._server = server
        self._history = history
        self._bookies = bookies
        self._unfit: dict[str, FaultTime] = {}
        server.open_session(self)

    def notice(self, change: NodeChange) -> None:
        """See `metadata.store.memory_server.Session`."""
        if change.path.startswith(BOOKIES):
            self.look()

    def look(self) -> None:
        """Record every bookie that can be used no more, or again."""
        for bookie in self._bookies:
            host = bookie.host
            if self._is_fit(bookie):
                self._history.end(self._unfit.pop(host, None))
            elif host not in self._unfit:
                self._unfit[host] = self._history.begin(host)

    def _is_fit(self, bookie: "BookieNode") -> bool:
        if not bookie.is_registered or bookie.stopping.is_set():
            return False
        assert bookie.bookie_id is not None
        path = bookie_path(BookieId(bookie.bookie_id))
        held = unpack_held(path, self._server.tree.get(path).value)
        return REGISTRATION_CODEC.unpack(path, held.content).writable

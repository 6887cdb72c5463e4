"""Times in which a bookie cannot be used by any client, as faults of its host.

Leaves faults of disks, networks and sessions to the modules that inject them.

Invariant: a bookie can be used while its process serves, is not about to stop, and is registered as
writable by its present session. Every change is seen in the step in which it happens.

Source: protocol rules 2.5, 4.3 and 5.6.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metadata.ids import BookieId
from metadata.paths import BOOKIES, bookie_path
from metadata.registry.registration import unpack_registration
from metadata.store.ephemeral import unpack_held
from metadata.store.memory import MemoryMetadataServer
from metadata.store.memory_tree import NodeChange
from tests.simulation.availability.fault_history import FaultHistory

if TYPE_CHECKING:
    from tests.simulation.availability.decision import FaultTime
    from tests.simulation.nodes import BookieNode


class BookieStates:
    """Watches all bookies of one cluster. A session of the metadata service."""

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
        return unpack_registration(held.content, path).writable

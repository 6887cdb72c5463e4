"""Checker: repair recovers a ledger only long after the node of its writer's client went.

Leaves other clients' recoveries to the checkers of all ledgers: they may fence a live writer.

Source: protocol rule 9.2; invariant "repair fences no live writer".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from ledger_client.recovery.missing_writers import SESSIONS
from metadata.errors import NodeNotFoundError
from metadata.ids import Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.paths import CLIENTS, client_path
from metadata.store.memory import MemoryMetadataServer
from metadata.store.memory_tree import NodeChange
from quire.repair.open_ledger_repair import OpenLedgerRepair
from quire.repair.outcome import Outcome
from quire.repair.standing import Standings
from tests.simulation.model import Model

CLOCK_ERROR: Final = 0.05
"""Largest share by which a machine's clock is wrong, with some room."""


class WriterNodes:
    """Since when each client's node was first missing. A session of the metadata service."""

    def __init__(
        self, server: MemoryMetadataServer, model: Model, session_timeout_s: float
    ) -> None:
        self._server = server
        self._model = model
        self._wait_s = SESSIONS * session_timeout_s * (1 - CLOCK_ERROR)
        self._first_missing_s: dict[str, float] = {}
        server.open_session(self)

    def notice(self, change: NodeChange) -> None:
        """See `metadata.store.memory_server.Session`."""
        if not change.path.startswith(f"{CLIENTS}/"):
            return
        try:
            self._server.tree.get(change.path)
        except NodeNotFoundError:
            self._first_missing_s.setdefault(change.path, self._model.loop.now_s)

    def judge(self, ledger: LedgerMetadata) -> None:
        """Check a recovery that repair begins."""
        if ledger.state is not LedgerState.OPEN:
            return
        since_s = self._first_missing_s.get(client_path(ledger.writer))
        if since_s is None or self._model.loop.now_s - since_s < self._wait_s:
            self._model.report(
                "writer nodes",
                f"repair recovers ledger {ledger.ledger_id}, and the node of its writer's client "
                f"was never missing before {since_s} s",
            )


@contextmanager
def watched_recoveries(nodes: WriterNodes) -> Iterator[None]:
    """Judge every recovery that repair begins, in the step in which it begins."""
    recover = OpenLedgerRepair._recover

    async def watched(
        self: OpenLedgerRepair, ledger: LedgerMetadata, version: Version, standings: Standings
    ) -> Outcome:
        nodes.judge(ledger)
        return await recover(self, ledger, version, standings)

    with patch.object(OpenLedgerRepair, "_recover", watched):
        yield

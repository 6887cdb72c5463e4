"""Objects that all writers of one client share.

Leaves building them to `ledger_client.client_services`. It does not import the append protocol: a
client that only reads starts without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bookie.wire.messages import Status
from ledger_client.bookies.placement import Placement
from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.copying import CopyThrottle
from ledger_client.observability import ClientEvent
from ledger_client.tasks import NextTick
from ledger_client.writing.bookie_news import BookieProbes, WriterNews
from ledger_client.writing.pacing import LedgerTurns, MetadataReads, Slices
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, UpdateToken
from metadata.ledgers.ledger_store import LedgerStore


@dataclass(frozen=True, slots=True)
class WriterServices:
    """Objects shared by all writers of one client."""

    pool: BookiePool
    placement: Placement
    ledgers: LedgerStore
    config: ClientConfig
    rng: Random
    on_refused: Callable[[BookieId, Status], None]
    """Called for each add that a bookie refuses for a reason that concerns only that bookie."""
    report: Callable[[ClientEvent], None]
    """Reports events to the application."""
    next_tick: NextTick
    metadata_reads: MetadataReads
    slices: Slices
    turns: LedgerTurns
    news: WriterNews
    probes: BookieProbes
    copy_turns: LedgerTurns
    copy_throttle: CopyThrottle

    def token(self) -> UpdateToken:
        """Return a new token for one metadata update."""
        return UpdateToken(self.rng.randbytes(UPDATE_TOKEN_BYTES))

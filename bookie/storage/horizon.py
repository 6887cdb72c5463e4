"""Ledgers whose tombstones may be trimmed: the limit on the number of tombstones, and the standing
of a ledger that a bookie does not know, from the ledger's metadata.

Leaves the transactions to `bookie.index.stored_states`, the time of a read of metadata to
`bookie.storage.cold_ledgers`, and the consequences for requests to `bookie.storage.admission`.

Invariants: the lowest tombstones are trimmed, and the horizon rises above them; it never falls; it
rises in memory before the transaction that trims, and durably in that transaction. So a look-up
that misses a trimmed tombstone knows that the id is at or below the horizon.
Source: protocol rule 10.3.
"""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Final

from bookie.index.index import Index
from bookie.storage.ledgers import Ledgers
from metadata.backoff import until_answered
from metadata.errors import NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore

KEPT_SHARE: Final = 7 / 8
"""Share of `tombstones_max` that stays after trimming. Trimming reads all ids, so it is not done
for each new tombstone.
"""


async def trim_tombstones(ledgers: Ledgers, index: Index, tombstones_max: int) -> int:
    """Trim the lowest tombstones if there are more than `tombstones_max`; return how many were
    trimmed. Not to be called during a checkpoint. Raises DiskFullError.
    """
    if ledgers.tombstone_count <= tombstones_max:
        return 0
    wanted = ledgers.tombstone_count - int(tombstones_max * KEPT_SHARE)
    trimmed = 0
    after: int | None = -1
    while after is not None and trimmed < wanted:
        page, after = await index.find_tombstones(after, wanted - trimmed)
        ids = [ledger_id for ledger_id in page if ledger_id not in ledgers.tombstones]
        if ids:
            ledgers.raise_horizon(ids[-1])
            count = await index.trim_tombstones(ids)
            ledgers.tombstone_count -= count
            trimmed += count
    return trimmed


class LedgerStatus(Enum):
    """State of a ledger, from a fresh read of its metadata."""

    GONE = auto()
    """It has no metadata, by an agreed read."""
    OPEN_HERE = auto()
    """It is open and names this bookie."""
    OPEN_ELSEWHERE = auto()
    """It is open and does not name this bookie yet."""
    ENDED = auto()
    """It is in recovery or closed: its writer may not store more."""
    UNKNOWN = auto()
    """The metadata service did not answer in time."""


LedgerStatusReader = Callable[[LedgerId], Awaitable[LedgerStatus]]
"""Repeats its read while the metadata service is not available; raises other MetadataErrors."""


def standing_of(metadata: LedgerMetadata, bookie_id: BookieId) -> LedgerStatus:
    """Return the standing of a ledger that exists."""
    if metadata.state is not LedgerState.OPEN:
        return LedgerStatus.ENDED
    return LedgerStatus.OPEN_HERE if metadata.names(bookie_id) else LedgerStatus.OPEN_ELSEWHERE


def ledger_status_reader(
    ledgers: LedgerStore, bookie_id: BookieId, rng: Random
) -> LedgerStatusReader:
    """Return a function that reads the standing of ledgers for one bookie.

    It repeats reads that fail at once because the session has just ended: otherwise the bookie
    would be replaced in the ledger, although its next session begins within the caller's limit.
    """

    async def read(ledger_id: LedgerId) -> LedgerStatus:
        return await until_answered(rng, partial(read_once, ledger_id))

    async def read_once(ledger_id: LedgerId) -> LedgerStatus:
        standing = await standing_by(ledger_id, is_agreed=False)
        if standing in (LedgerStatus.GONE, LedgerStatus.OPEN_ELSEWHERE):
            # A leader that was replaced, and does not know it, may not know a new ledger or member.
            standing = await standing_by(ledger_id, is_agreed=True)
        return standing

    async def standing_by(ledger_id: LedgerId, *, is_agreed: bool) -> LedgerStatus:
        try:
            metadata, _ = await ledgers.get(ledger_id, fresh=not is_agreed, agreed=is_agreed)
        except NodeNotFoundError:
            return LedgerStatus.GONE
        return standing_of(metadata, bookie_id)

    return read

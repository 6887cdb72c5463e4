"""One entry as one bookie stores it, with the verdict on its digest and the batch around it.

Leaves the connection to `ledger_client.bookies.pool`, and the text for people to the command.

Invariant: nothing is fenced and nothing is written. Source: protocol rules 2.4, 4.2 and 8.2.
"""

from dataclasses import dataclass
from enum import StrEnum

from bookie.wire.batch import BATCH_ENTRIES_MAX, BatchView
from bookie.wire.entries import Entries
from bookie.wire.errors import BatchError
from bookie.wire.messages import ReadEntries, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys, verify
from ledger_client.reading.replica_reading import CALL_TIMEOUT_S, READ_BYTES
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId


class DigestVerdict(StrEnum):
    """Result of checking the stored bytes."""

    VALID = "valid"
    INVALID = "invalid"
    NEEDS_PASSWORD = "cannot be checked without the password"
    """The writer's digest matches; the MAC of the batch could not be checked."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One replica's copy of an entry."""

    payload: bytes
    verdict: DigestVerdict
    reason: str
    """Why the digest is invalid; empty if it is valid."""
    digest: int
    batch_first: int
    batch_last: int
    """Last entry of the batch in which the bookie stores the entry; the first is `batch_first`."""
    batch_lac: int | None
    """The writer's LAC when it sent the batch; None if the bookie returned only a part of the
    batch.
    """


async def read_stored_entry(
    pool: BookiePool,
    bookie_id: BookieId,
    keys: LedgerKeys,
    entry_id: EntryId,
    *,
    has_password: bool,
) -> StoredEntry:
    """Read one entry from one bookie. Raises BookieCallError: with a `status` if the bookie
    answered that it cannot return the entry, with a `failure` if it gave no answer.
    """
    reading = _EntryReading(pool, bookie_id, keys)
    answer = await reading.read(entry_id, entry_id)
    if not answer.batches:
        status = Status.UNKNOWN if answer.status is Status.OK else answer.status
        raise BookieCallError(bookie_id, "it returned no entry", status=status)
    batch = answer.batches[0]
    header = batch.header
    if not header.first_entry_id <= entry_id <= header.last_entry_id:
        why = f"it returned entries {header.first_entry_id}..{header.last_entry_id}"
        raise BookieCallError(bookie_id, why, status=Status.UNKNOWN)
    verdict, reason = _judge(batch, keys, has_password=has_password)
    place = entry_id - header.first_entry_id
    first, last, lac = await reading.find_batch(entry_id)
    payload, digest = batch.entry(place), batch.digests[place]
    return StoredEntry(payload, verdict, reason, digest, first, last, lac)


def _judge(batch: BatchView, keys: LedgerKeys, *, has_password: bool) -> tuple[DigestVerdict, str]:
    can_check = has_password or keys.mac_key is None
    try:
        if can_check:
            verify(batch, keys)
        batch.verify_digests(keys.seed)
    except BatchError as error:
        return DigestVerdict.INVALID, str(error)
    return (DigestVerdict.VALID if can_check else DigestVerdict.NEEDS_PASSWORD), ""


class _EntryReading:
    """Reads the batch around one entry."""

    def __init__(self, pool: BookiePool, bookie_id: BookieId, keys: LedgerKeys) -> None:
        self._pool = pool
        self._bookie_id = bookie_id
        self._keys = keys

    async def read(self, first: int, last: int, bytes_max: int = READ_BYTES) -> Entries:
        request = ReadEntries(
            self._keys.ledger_id, EntryId(first), EntryId(last), bytes_max, fence=False
        )
        return await self._pool.read_entries(self._bookie_id, request, timeout_s=CALL_TIMEOUT_S)

    async def find_batch(self, entry_id: int) -> tuple[int, int, int | None]:
        """Return the first and the last entry of the batch that contains an entry, and its LAC.

        A bookie returns only the requested part of a batch. The batch begins at the lowest entry
        from which one batch reaches as far as this entry; a binary search finds it.
        """
        highest = min(entry_id + BATCH_ENTRIES_MAX - 1, ENTRY_ID_MAX)
        _, last, _ = await self._batch_from(entry_id, highest)
        low, high = max(0, entry_id - BATCH_ENTRIES_MAX + 1), entry_id
        while low < high:
            middle = (low + high) // 2
            first, reached, _ = await self._batch_from(middle, entry_id)
            if reached >= entry_id:
                high = min(first, middle)
            else:
                low = middle + 1
        _, _, lac = await self._batch_from(high, last)
        return high, last, lac

    async def _batch_from(self, first: int, last: int) -> tuple[int, int, int | None]:
        """Return the range of the first batch of first..last that the bookie returns, and its LAC
        if it is complete; (first, -1, None) if it returns none.
        """
        answer = await self.read(first, last, bytes_max=1)
        for batch in answer.batches:
            header = batch.header
            if header.first_entry_id <= first <= header.last_entry_id:
                lac = None if header.is_slice else header.lac
                return header.first_entry_id, header.last_entry_id, lac
        return first, -1, None

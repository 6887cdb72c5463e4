"""One bookie's copies of a ledger's entries, read directly from that bookie: listed, one entry with
the verdict on its digest, or compared with the copies of another bookie.

Leaves choosing bookies and judging missing entries to `ledger_client.reading.verification`, and the
text for people to the command.

Invariants: nothing is fenced and nothing is written; a digest is only returned after it was checked
against its entry; memory is bounded by one answer of each bookie. Ranges of a comparison ascend, do
not overlap, and cover every entry that either bookie holds; two entries are equal when their
writer's digests are.

Source: protocol rules 2.4, 3.2, 4.2, 8.2 and 9.4.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import groupby
from typing import Final, NamedTuple

from bookie.wire.batch import BATCH_ENTRIES_MAX, BatchView
from bookie.wire.codec import Entries
from bookie.wire.errors import BatchError
from bookie.wire.messages import ListEntries, ReadEntries, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys, verify
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.entry_ranges import Range

READ_BYTES: Final = 4 * 1024 * 1024
CALL_TIMEOUT_S: Final = 15.0


class ReadOutcome(Enum):
    """Outcome of reading entries."""

    READ = "read"
    MISSING = "missing"
    """The bookie answers that it does not hold them."""
    BAD = "bad"
    """They are damaged, or the bookie cannot decide whether it holds them."""


class ReplicaPiece(NamedTuple):
    """Consecutive entries with one outcome; `digests` and `lengths` have one item for each entry
    that was read.
    """

    first: int
    last: int
    outcome: ReadOutcome
    digests: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()


class ReplicaReading:
    """One bookie's copies of one ledger; the pool sends the ledger's key."""

    def __init__(self, pool: BookiePool, bookie_id: BookieId, keys: LedgerKeys) -> None:
        self.bookie_id = bookie_id
        self._pool = pool
        self._keys = keys

    async def stored_ranges(self) -> AsyncGenerator[Range, None]:
        """Yield the ranges that the bookie lists, ascending. Raises BookieCallError."""
        at = 0
        while True:
            request = ListEntries(self._keys.ledger_id, EntryId(at))
            answer = await self._pool.list_entries(
                self.bookie_id, request, timeout_s=CALL_TIMEOUT_S
            )
            if answer.status in (Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY):
                return
            if answer.status is not Status.OK:
                why = "it cannot list its entries"
                raise BookieCallError(self.bookie_id, why, status=answer.status)
            for range_ in answer.ranges:
                yield range_
            if answer.complete or not answer.ranges:
                return
            at = answer.ranges[-1][1] + 1

    async def read(self, first: int, last: int) -> AsyncGenerator[ReplicaPiece, None]:
        """Yield pieces that cover first..last in order. Raises BookieCallError."""
        at = first
        while at <= last:
            request = ReadEntries(
                self._keys.ledger_id, EntryId(at), EntryId(last), READ_BYTES, fence=False
            )
            answer = await self._pool.read_entries(
                self.bookie_id, request, timeout_s=CALL_TIMEOUT_S
            )
            end = min(answer.next_entry_id, last + 1)
            for piece in self._check(answer.batches, at, end):
                yield piece
            has_moved, at = end > at, max(at, end)
            if has_moved and answer.status is Status.OK:
                continue
            if at <= last:  # this entry cannot be read; later ones may be readable
                gone = answer.status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
                yield ReplicaPiece(at, at, ReadOutcome.MISSING if gone else ReadOutcome.BAD)
                at += 1

    def _check(self, batches: tuple[BatchView, ...], first: int, end: int) -> list[ReplicaPiece]:
        """Check the batches, which must contain the entries from `first` to below `end`."""
        pieces: list[ReplicaPiece] = []
        at = first
        for batch in batches:
            begins, ends = batch.header.first_entry_id, batch.header.last_entry_id
            if not begins <= at <= ends:
                break
            last = min(ends, end - 1)
            try:
                verify(batch, self._keys)
                batch.verify_digests(self._keys.seed)
            except BatchError:
                pieces.append(ReplicaPiece(at, last, ReadOutcome.BAD))
            else:
                shown = slice(at - begins, last + 1 - begins)
                digests, lengths = batch.digests[shown], batch.lengths[shown]
                pieces.append(ReplicaPiece(at, last, ReadOutcome.READ, digests, lengths))
            at = last + 1
        if at < end:
            pieces.append(ReplicaPiece(at, end - 1, ReadOutcome.BAD))
        return pieces


class RangeVerdict(StrEnum):
    """Verdict on a range of entries at bookies A and B."""

    EQUAL = "equal"
    DIFFERENT = "different"
    """Both hold the entries with valid digests, and the digests differ."""
    ONLY_A = "only-a"
    ONLY_B = "only-b"
    UNREADABLE_A = "unreadable-a"
    """A lists the entries and cannot return them undamaged; B can."""
    UNREADABLE_B = "unreadable-b"
    UNREADABLE = "unreadable"
    """Neither can return the entries undamaged."""


class ComparedRange(NamedTuple):
    """Consecutive entries with one verdict."""

    first: int
    last: int
    verdict: RangeVerdict


_OF_OUTCOMES = {
    (ReadOutcome.READ, ReadOutcome.MISSING): RangeVerdict.ONLY_A,
    (ReadOutcome.MISSING, ReadOutcome.READ): RangeVerdict.ONLY_B,
    (ReadOutcome.READ, ReadOutcome.BAD): RangeVerdict.UNREADABLE_B,
    (ReadOutcome.BAD, ReadOutcome.READ): RangeVerdict.UNREADABLE_A,
}


async def compare_replicas(
    a: ReplicaReading, b: ReplicaReading
) -> AsyncGenerator[ComparedRange, None]:
    """Yield the verdict on every entry that A or B holds; adjacent ranges with the same verdict are
    joined. Raises BookieCallError.
    """
    joined: ComparedRange | None = None
    async with aclosing(_parts(a, b)) as parts:
        async for part in parts:
            if joined is None:
                joined = part
            elif joined.verdict is part.verdict and joined.last + 1 == part.first:
                joined = joined._replace(last=part.last)
            else:
                yield joined
                joined = part
    if joined is not None:
        yield joined


async def _parts(a: ReplicaReading, b: ReplicaReading) -> AsyncGenerator[ComparedRange, None]:
    async with aclosing(a.stored_ranges()) as held_a, aclosing(b.stored_ranges()) as held_b:
        in_a, in_b = await anext(held_a, None), await anext(held_b, None)
        while in_a is not None or in_b is not None:
            if in_b is None or (in_a is not None and in_a[0] < in_b[0]):
                assert in_a is not None
                last = in_a[1] if in_b is None else min(in_a[1], in_b[0] - 1)
                yield ComparedRange(in_a[0], last, RangeVerdict.ONLY_A)
                in_a = await _behind(in_a, last, held_a)
            elif in_a is None or in_b[0] < in_a[0]:
                last = in_b[1] if in_a is None else min(in_b[1], in_a[0] - 1)
                yield ComparedRange(in_b[0], last, RangeVerdict.ONLY_B)
                in_b = await _behind(in_b, last, held_b)
            else:
                last = min(in_a[1], in_b[1])
                async for part in _compare_both(a, b, in_a[0], last):
                    yield part
                in_a, in_b = await _behind(in_a, last, held_a), await _behind(in_b, last, held_b)


async def _behind(held: Range, last: int, more: AsyncIterator[Range]) -> Range | None:
    """Return the part of a range after `last`, or the next range."""
    return (last + 1, held[1]) if held[1] > last else await anext(more, None)


async def _compare_both(
    a: ReplicaReading, b: ReplicaReading, first: int, last: int
) -> AsyncGenerator[ComparedRange, None]:
    """Compare entries that both bookies list, reading both in pieces."""
    async with aclosing(a.read(first, last)) as pieces_a, aclosing(b.read(first, last)) as pieces_b:
        piece_a, piece_b = await anext(pieces_a), await anext(pieces_b)
        while True:
            end = min(piece_a.last, piece_b.last)
            for part in _judge_both(_cut(piece_a, first, end), _cut(piece_b, first, end)):
                yield part
            if end == last:
                return
            first = end + 1
            piece_a = await anext(pieces_a) if piece_a.last == end else piece_a
            piece_b = await anext(pieces_b) if piece_b.last == end else piece_b


def _cut(piece: ReplicaPiece, first: int, last: int) -> ReplicaPiece:
    digests = piece.digests[first - piece.first : last + 1 - piece.first]
    return ReplicaPiece(first, last, piece.outcome, digests)


def _judge_both(a: ReplicaPiece, b: ReplicaPiece) -> list[ComparedRange]:
    """Compare two pieces of the same entries."""
    if (a.outcome, b.outcome) != (ReadOutcome.READ, ReadOutcome.READ):
        verdict = _OF_OUTCOMES.get((a.outcome, b.outcome), RangeVerdict.UNREADABLE)
        return [ComparedRange(a.first, a.last, verdict)]
    judged: list[ComparedRange] = []
    first = a.first
    for is_equal, group in groupby(x == y for x, y in zip(a.digests, b.digests, strict=True)):
        count = sum(1 for _ in group)
        verdict = RangeVerdict.EQUAL if is_equal else RangeVerdict.DIFFERENT
        judged.append(ComparedRange(first, first + count - 1, verdict))
        first += count
    return judged


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

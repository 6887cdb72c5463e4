"""Read phase of a recovery: which entries beyond the LAC exist, and where the ledger ends.

Leaves digests to the shell (a reported run is verified), and writing back existing entries to
`recovery_write.py`.

Every read goes to the complete write set at once. Reading from one replica first would move fewer
bytes. But the end needs WQ - AQ + 1 answers anyway, each read fences its bookie, a slow replica
never delays the answer of another, and writing back moves as many bytes. Reads are of ranges
(chunks); the number of chunks under way doubles while they prove to be full.

Invariants: entries are decided in order; existence at one replica is existence; a negative counts
only for the entry that it names; a request starts at the first entry that is not known to exist, so
no request is repeated without progress.

Source: protocol rules 7.3, 7.6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bookie.wire.messages import Status
from ledger_client.protocol.recovery_events import (
    FoundRun,
    RangeAnswered,
    RangeFailed,
    ReadRange,
    Undecided,
)
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.copies import is_striped, negatives_needed, stripe_end, write_set
from metadata.ledgers.ledger_metadata import Fragment, QuorumSpec

CHUNK_ENTRIES: Final = 1024
CHUNKS_AT_FIRST_ENTRIES: Final = 16
"""Minimum number of entries in the first chunks together: matters for narrow stripes."""
CHUNKS_OPEN_MAX: Final = 8
CHUNKS_OPEN_ENTRIES: Final = 256
"""With narrow stripes, more chunks are open: as many as contain this number of entries."""
NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive existing entries, in order, each with its bytes."""

    first_entry_id: EntryId
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The ledger ends before this entry: enough replicas answered that they never had it."""

    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class _PointAnswer:
    """A replica's answer for one entry that it did not return."""

    entry_id: EntryId
    status: Status
    reason: str


class _Chunk:
    """A few entries with the same replicas, and the answers for them."""

    __slots__ = ("_anchor", "_answers", "_asked", "_lengths", "first", "last", "next", "replicas")

    def __init__(self, first: EntryId, last: EntryId, replicas: tuple[BookieId, ...]) -> None:
        self.first = first
        self.last = last
        self.replicas = replicas
        self.next = first
        """The first entry that is not known to exist."""
        self._lengths: list[int | None] = [None] * (last - first + 1)
        self._asked: dict[BookieId, EntryId] = {}
        self._answers: dict[BookieId, _PointAnswer] = {}
        self._anchor: tuple[EntryId, int] | None = None

    @property
    def is_full(self) -> bool:
        """Return whether every entry exists."""
        return self.next > self.last

    def record(self, bookie_id: BookieId, asked_from: EntryId, answer: _PointAnswer | None) -> bool:
        """Record a replica's answer; return False if there was no such request."""
        if self._asked.get(bookie_id) != asked_from:
            return False
        del self._asked[bookie_id]
        if answer is not None:
            self._answers[bookie_id] = answer
        return True

    def found(self, run: FoundRun) -> None:
        """Record existing entries; parts outside the chunk belong to other chunks."""
        low = max(run.first_entry_id, self.first)
        high = min(run.next_entry_id, EntryId(self.last + 1))
        if low >= high:
            return
        skip = low - run.first_entry_id
        self._lengths[low - self.first : high - self.first] = run.lengths[
            skip : skip + (high - low)
        ]
        if run.length_before is not None and self._anchor is None:
            self._anchor = low, run.length_before + sum(run.lengths[:skip])
        while not self.is_full and self._lengths[self.next - self.first] is not None:
            self.next = EntryId(self.next + 1)

    def requests(self) -> list[ReadRange]:
        """Return a read of `next` for each replica without an answer for it, and record the
        requests.
        """
        wanted = []
        for bookie_id in self.replicas:
            answer = self._answers.get(bookie_id)
            if self.is_full or bookie_id in self._asked:
                continue
            if answer is None or answer.entry_id != self.next:
                self._asked[bookie_id] = self.next
                wanted.append(ReadRange(bookie_id, self.next, self.last))
        return wanted

    def verdict(self, needed: int, *, prefers_found: bool) -> Ended | Undecided | None:
        """Return the verdict on `next`, or None while more answers can come. With `prefers_found`,
        negatives alone decide nothing while another replica may still have it (11.5).
        """
        assert not self.is_full, "every entry exists"
        said = [a for b in self.replicas if (a := self._answers.get(b)) and a.entry_id == self.next]
        negatives = [a for a in said if a.status in NEGATIVES]
        is_heard = len(said) == len(self.replicas)
        if len(negatives) >= needed and (is_heard or not prefers_found):
            return Ended(self.next)
        if not is_heard:
            return None
        missing = {
            b: self._answers[b].reason or f"answered {self._answers[b].status.name}"
            for b in self.replicas
            if self._answers[b].status not in NEGATIVES
        }
        what = f"the entry from one replica, or {needed} replicas that never had it"
        return Undecided(self.next, what, missing)

    def lengths(self, first: EntryId, stop: EntryId) -> tuple[int, ...]:
        """Return the sizes of existing entries, in bytes."""
        known = self._lengths[first - self.first : stop - self.first]
        return tuple(length for length in known if length is not None)

    def length_before_first(self) -> int | None:
        """Return the ledger's bytes before the chunk, if one of the first entries came in a
        complete batch.
        """
        if self._anchor is None or self._anchor[0] > self.next:
            return None
        entry_id, length_before = self._anchor
        return length_before - sum(self.lengths(self.first, entry_id))


class ReadPhase:
    """Reads forward from where recovery starts, against one fragment as it was then."""

    __slots__ = ("_chunks", "_fragment", "_next_chunk", "_open_max", "_quorum", "_taken", "start")

    def __init__(self, quorum: QuorumSpec, fragment: Fragment, start: EntryId) -> None:
        assert start >= fragment.first_entry_id, "older fragments are never recovered"
        self._quorum = quorum
        self._fragment = fragment
        self.start = start
        self._next_chunk = start
        self._taken = start
        self._open_max = max(1, CHUNKS_AT_FIRST_ENTRIES // self._chunk_entries())
        self._chunks: list[_Chunk] = []

    def requests(self) -> list[ReadRange]:
        """Open as many chunks as may be under way; return their reads."""
        wanted: list[ReadRange] = []
        while len(self._chunks) < self._open_max and self._next_chunk <= ENTRY_ID_MAX:
            first = self._next_chunk
            replicas = write_set(self._quorum, self._fragment, first)
            chunk = _Chunk(first, self._chunk_last(first), replicas)
            self._next_chunk = EntryId(chunk.last + 1)
            self._chunks.append(chunk)
            wanted += chunk.requests()
        return wanted

    def answered(self, event: RangeAnswered) -> list[ReadRange]:
        """Record an answer; return the next reads for the same entries."""
        answer = None
        if event.status is not Status.OK:
            answer = _PointAnswer(event.next_entry_id, event.status, event.reason)
        elif event.next_entry_id <= event.first_entry_id:
            answer = _PointAnswer(event.first_entry_id, Status.UNKNOWN, "answered nothing")
        return self._record(event.bookie_id, event.first_entry_id, answer, event.runs)

    def failed(self, event: RangeFailed) -> list[ReadRange]:
        """Record that a bookie could not be reached: unknown, never a negative."""
        answer = _PointAnswer(event.first_entry_id, Status.UNKNOWN, event.reason)
        return self._record(event.bookie_id, event.first_entry_id, answer, ())

    def take(self) -> list[Stretch]:
        """Return the entries found to exist since the last call, in order."""
        stretches = []
        while self._chunks:
            chunk = self._chunks[0]
            if chunk.next > self._taken:
                stretches.append(Stretch(self._taken, chunk.lengths(self._taken, chunk.next)))
                self._taken = chunk.next
            if not chunk.is_full:
                break
            self._chunks.pop(0)
            self._open_max = min(2 * self._open_max, self._open_limit())
        return stretches

    def verdict(self) -> Ended | Undecided | None:
        """Return the verdict on the first entry that is not known to exist; entries read beyond it
        do not count.
        """
        chunk = next((c for c in self._chunks if not c.is_full), None)
        if chunk is None:
            return None
        prefers_found = self._quorum.is_in_sync
        return chunk.verdict(negatives_needed(self._quorum), prefers_found=prefers_found)

    def has_found_first(self) -> bool:
        """Return whether the entry at which recovery started exists."""
        return self._taken > self.start or (
            bool(self._chunks) and self._chunks[0].next > self.start
        )

    def length_before_start(self) -> int | None:
        """Return the ledger's bytes before the start, if it came in a complete batch."""
        if self.start == 0:
            return 0
        untouched = self._chunks and self._chunks[0].first == self.start
        return self._chunks[0].length_before_first() if untouched else None

    def _record(
        self,
        bookie_id: BookieId,
        asked_from: EntryId,
        answer: _PointAnswer | None,
        runs: Sequence[FoundRun],
    ) -> list[ReadRange]:
        chunk = next((c for c in self._chunks if c.first <= asked_from <= c.last), None)
        if chunk is None or not chunk.record(bookie_id, asked_from, answer):
            return []
        for run in runs:
            chunk.found(run)
        return chunk.requests()

    def _chunk_entries(self) -> int:
        if not is_striped(self._quorum):
            return CHUNK_ENTRIES
        return min(CHUNK_ENTRIES, self._quorum.stripe_entries)

    def _open_limit(self) -> int:
        return max(CHUNKS_OPEN_MAX, CHUNKS_OPEN_ENTRIES // self._chunk_entries())

    def _chunk_last(self, first: EntryId) -> EntryId:
        """Return the last entry of a chunk: near a stripe's end, because batches end there; within
        the stripe unless every bookie holds everything.
        """
        furthest = min(first + CHUNK_ENTRIES - 1, ENTRY_ID_MAX)
        end = stripe_end(self._quorum, first)
        if not is_striped(self._quorum):
            while end + self._quorum.stripe_entries <= furthest:
                end = EntryId(end + self._quorum.stripe_entries)
        return EntryId(min(end, furthest))

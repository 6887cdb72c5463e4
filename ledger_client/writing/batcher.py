"""Division of appended entries into batches.

Leaves building their bytes to `bookie.wire.batch` and sending them to the writer. The cost per
entry is that of C loops.

Invariant: no batch crosses a multiple of the stripe size, the entry limit or, unless it is one
entry, the byte limit (rule 3.1).

Source: protocol rules 3.1 and 4.2.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ledger_client.config import ClientConfig
from ledger_client.errors import EntryTooLargeError
from ledger_client.protocol.quorum import stripe_end
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Size limits of one batch and one entry, for their stored bytes."""

    entries_max: int
    bytes_max: int
    entry_bytes_max: int
    overhead_bytes: int = 0
    """Number of bytes that encryption adds to each entry."""

    @classmethod
    def of(cls, config: ClientConfig, overhead_bytes: int = 0) -> "BatchLimits":
        """Return a client's limits. A batch fits into the window: an empty window admits any batch,
        and a larger one could exceed what a bookie may have unanswered (rule 4.6).
        """
        return cls(
            min(config.batch_entries_max, config.window_entries_max),
            min(config.batch_bytes_max, config.window_bytes_max),
            config.entry_bytes_max,
            overhead_bytes,
        )

    @property
    def payload_bytes_max(self) -> int:
        """Maximum size of an entry as it is appended."""
        return self.entry_bytes_max - self.overhead_bytes

    def stored_bytes(self, payload: bytes) -> int:
        """Return the number of bytes of an appended entry that bookies store."""
        return len(payload) + self.overhead_bytes


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One batch to build: its entries and the total of their stored bytes."""

    payloads: Sequence[bytes]
    payload_bytes: int


def own_bytes(
    items: Sequence[object], limits: BatchLimits, ledger_id: LedgerId
) -> tuple[Sequence[bytes], int]:
    """Return entries as `bytes`, copied if they were mutable, and the total of their stored bytes.

    Raises TypeError for an entry that is not bytes-like, EntryTooLargeError.
    """
    owned: list[bytes] = []
    if set(map(type, items)) == {bytes}:
        owned = items  # type: ignore[assignment]  # checked above to be bytes
    else:
        owned = [_own(item) for item in items]
    sizes = list(map(len, owned))
    limit = limits.payload_bytes_max
    if max(sizes, default=0) > limit:
        raise EntryTooLargeError(size=max(sizes), limit=limit, ledger_id=ledger_id)
    return owned, sum(sizes) + limits.overhead_bytes * len(sizes)


def own_entry(item: object, limits: BatchLimits, ledger_id: LedgerId) -> bytes:
    """Return one entry as `bytes`, copied if it was mutable. Raises the errors of `own_bytes`."""
    owned = item if type(item) is bytes else _own(item)
    if len(owned) > limits.payload_bytes_max:
        limit = limits.payload_bytes_max
        raise EntryTooLargeError(size=len(owned), limit=limit, ledger_id=ledger_id)
    return owned


def room_in_batch(quorum: QuorumSpec, next_entry_id: EntryId, limits: BatchLimits) -> int:
    """Return the maximum number of entries in a batch that starts at `next_entry_id`."""
    return min(limits.entries_max, stripe_end(quorum, next_entry_id) - next_entry_id + 1)


def cut_batches(
    payloads: Sequence[bytes], first_entry_id: EntryId, quorum: QuorumSpec, limits: BatchLimits
) -> Iterable[PlannedBatch]:
    """Yield the batches of consecutive entries, in order."""
    start, count = 0, len(payloads)
    overhead = limits.overhead_bytes
    sizes = [len(each) + overhead for each in payloads] if overhead else map(len, payloads)
    ends = list(accumulate(sizes))
    while start < count:
        room = room_in_batch(quorum, EntryId(first_entry_id + start), limits)
        before = ends[start - 1] if start else 0
        stop = bisect_right(ends, before + limits.bytes_max, start, min(start + room, count))
        stop = max(stop, start + 1)
        whole = start == 0 and stop == count
        yield PlannedBatch(payloads if whole else payloads[start:stop], ends[stop - 1] - before)
        start = stop


def _own(item: object) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, bytearray | memoryview):
        return bytes(item)
    raise TypeError(f"an entry must be bytes, bytearray or memoryview, not {type(item).__name__}")

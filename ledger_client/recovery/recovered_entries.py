"""Entries that a recovery has read and not yet written back, and batches made of them.

Leaves the choice of entries, with their LAC and length, to `protocol/recovery.py`.

Invariants: only verified entries are kept; a batch is built once and sent to every bookie as the
same bytes; entry digests depend only on id and payload, so rebuilt batches contain the same
entries.

Source: protocol rules 4.2, 7.4.
"""

from bookie.wire.batch import BatchView, Buffer, build_batch
from ledger_client.digest import LedgerKeys
from ledger_client.protocol.recovery_events import FoundRun, Span
from metadata.ids import EntryId


class RecoveredEntries:
    """Payloads that one recovery holds."""

    def __init__(self, keys: LedgerKeys) -> None:
        self._keys = keys
        self._held: dict[EntryId, BatchView] = {}
        """Each entry, and the first batch in which it came."""
        self._built: dict[EntryId, Buffer] = {}
        self._released = EntryId(0)

    def hold(self, batch: BatchView) -> FoundRun:
        """Keep a verified batch; return its entries as a run."""
        header = batch.header
        for entry_id in range(max(header.first_entry_id, self._released), header.last_entry_id + 1):
            self._held.setdefault(EntryId(entry_id), batch)
        length_before = None if header.is_slice else header.length_before
        return FoundRun(header.first_entry_id, batch.lengths, length_before)

    def batch(self, span: Span, lac: EntryId) -> Buffer:
        """Return the span's entries as one batch."""
        built = self._built.get(span.first_entry_id)
        if built is None:
            built = self._built[span.first_entry_id] = self._build(span, lac)
        return built

    def release(self, before: EntryId) -> None:
        """Drop all entries before one."""
        first = self._released or min(self._held, default=before)
        for entry_id in range(min(first, before), before):
            self._held.pop(EntryId(entry_id), None)
            self._built.pop(EntryId(entry_id), None)
        self._released = max(self._released, before)

    def _build(self, span: Span, lac: EntryId) -> Buffer:
        payloads: list[bytes] = []
        entry_id = span.first_entry_id
        while entry_id < span.next_entry_id:
            batch = self._held[entry_id]
            skip = entry_id - batch.header.first_entry_id
            stop = min(batch.header.count, span.next_entry_id - batch.header.first_entry_id)
            payloads += [bytes(view) for view in batch.payload_views()[skip:stop]]
            entry_id = EntryId(batch.header.first_entry_id + stop)
        keys = self._keys
        return build_batch(
            keys.ledger_id,
            span.first_entry_id,
            lac,
            span.length_before,
            payloads,
            keys.seed,
            keys.mac_key,
        )

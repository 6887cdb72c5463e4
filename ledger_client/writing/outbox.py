"""Bytes of a writer's batches, kept until they are confirmed.

Leaves sending them to `append_shell`.

Invariants: entries get their ids in the order in which the writer accepted them; a batch is built
once, payloads are encrypted when it is built, and its bytes never change, so that a resend repeats
them (rule 4.2).

Source: protocol rules 4.1 and 4.2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bookie.wire.batch import build_batch
from ledger_client.digest import LedgerKeys
from ledger_client.encryption.sealing import PayloadSealer
from metadata.ids import NO_ENTRY, EntryId
from quire.tracing import spans as tracing


@dataclass(slots=True)
class SentBatch:
    """One unconfirmed batch."""

    data: bytearray
    last_entry_id: EntryId
    payload_bytes: int
    count: int
    appended_at: float
    context: object
    """Context of the first append, for traces."""


class Outbox:
    """Unconfirmed batches of one ledger, by first entry id, in order."""

    def __init__(self, keys: LedgerKeys, sealer: PayloadSealer | None = None) -> None:
        assert not keys.lacks_mac_key, "a writer has the password"
        self.lap = NO_ENTRY
        self.lac_sent = NO_ENTRY
        self._keys = keys
        self._sealer = sealer
        self._length = 0
        self._batches: dict[EntryId, SentBatch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def build(
        self, payloads: Sequence[bytes], payload_bytes: int, lac: EntryId, now: float
    ) -> EntryId:
        """Build the batch of the next entries; return its first entry id. `payload_bytes` are the
        bytes to store: encryption adds to those of `payloads`.
        """
        first = EntryId(self.lap + 1)
        if self._sealer is not None:
            payloads = self._sealer.seal(first, payloads)
        keys = self._keys
        data = build_batch(
            keys.ledger_id, first, lac, self._length, payloads, keys.seed, keys.mac_key
        )
        count = len(payloads)
        last = EntryId(self.lap + count)
        batch = SentBatch(data, last, payload_bytes, count, now, tracing.current())
        self._batches[first] = batch  # before the ids count as used: this can fail
        self.lap = last
        self.lac_sent = lac
        self._length += payload_bytes
        return first

    def data(self, first_entry_id: EntryId) -> bytearray:
        """Return the bytes of an unconfirmed batch."""
        return self._batches[first_entry_id].data

    def last_entry_of(self, first_entry_id: EntryId) -> EntryId:
        """Return the last entry of an unconfirmed batch; for any other batch, the given first
        entry.
        """
        batch = self._batches.get(first_entry_id)
        return first_entry_id if batch is None else batch.last_entry_id

    @property
    def oldest_appended_at(self) -> float | None:
        """Loop time at which the oldest unconfirmed batch was appended."""
        for batch in self._batches.values():
            return batch.appended_at
        return None

    def confirmed(self, lac: EntryId) -> Iterator[tuple[EntryId, SentBatch]]:
        """Yield the first entry and the batch of those that `release` would drop."""
        for first, batch in self._batches.items():
            if batch.last_entry_id > lac:
                return
            yield first, batch

    def release(self, lac: EntryId) -> tuple[int, int]:
        """Drop confirmed batches; return their payload bytes and number of entries."""
        payload_bytes = count = 0
        while self._batches:
            first = next(iter(self._batches))
            batch = self._batches[first]
            if batch.last_entry_id > lac:
                break
            del self._batches[first]
            payload_bytes += batch.payload_bytes
            count += batch.count
        return payload_bytes, count

    def clear(self) -> tuple[int, int]:
        """Drop everything; return the payload bytes and the number of entries."""
        return self.release(self.lap)

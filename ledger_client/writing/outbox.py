"""Unconfirmed entries of one writer: the bytes of their batches, and the limit of their number.

Leaves sending them to `append_shell`.

Invariants: entries get their ids in the order in which the writer accepted them; a batch is built
once, payloads are encrypted when it is built, and its bytes never change, so that a resend repeats
them (rule 4.2).

Source: protocol rules 4.1 and 4.2.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bookie.wire.batch import build_batch
from ledger_client.digest import LedgerKeys
from ledger_client.encryption.ledger_cipher import PayloadSealer
from ledger_client.errors import LedgerError
from metadata.ids import NO_ENTRY, EntryId
from quire.tracing import spans as tracing

ENTRY_COST_BYTES: Final = 64
"""Cost of one pending entry in addition to its payload."""


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


class AppendWindow:
    """Limit of the unconfirmed bytes and entries of one ledger, and the queue of callers that wait
    for room. Callers are admitted first come, first served; `append_many` holds its place until its
    last entry is admitted, so that its ids are one range.
    """

    def __init__(self, bytes_max: int, entries_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._bytes = 0
        self._entries = 0
        self._failure: LedgerError | None = None
        self._changed = asyncio.Event()
        self._is_turn_taken = False
        self._line: deque[asyncio.Future[None]] = deque()
        self._in_line = 0

    @property
    def entries(self) -> int:
        """Number of entries that have an id and are not confirmed."""
        return self._entries

    def has_room(self, payload_bytes: int, count: int = 1) -> bool:
        """Return whether this much may be admitted now; anything may when nothing is pending, so
        that an entry larger than the window has its turn too.
        """
        if not self._entries:
            return True
        return (
            self._bytes + payload_bytes + count * ENTRY_COST_BYTES <= self._bytes_max
            and self._entries + count <= self._entries_max
        )

    def is_free(self, payload_bytes: int) -> bool:
        """Return whether an entry may be admitted now and no earlier caller waits."""
        return not self._in_line and self.has_room(payload_bytes)

    def take(self, payload_bytes: int, count: int) -> None:
        """Count entries that got ids."""
        self._bytes += payload_bytes + count * ENTRY_COST_BYTES
        self._entries += count

    def release(self, payload_bytes: int, count: int) -> None:
        """Count entries that are confirmed or failed, and wake callers that wait for room."""
        self._bytes -= payload_bytes + count * ENTRY_COST_BYTES
        self._entries -= count
        assert self._bytes >= 0, "released more than was taken"
        self._wake()

    def fail(self, error: LedgerError) -> None:
        """Make every caller that waits for room or in line, now or later, raise `error`."""
        self._failure = error
        self._wake()
        for turn in self._line:
            if not turn.done():
                turn.set_exception(error.fresh())

    async def wait_for_room(self, payload_bytes: int, count: int) -> None:
        """Return once this much may be admitted; the caller holds the turn."""
        while True:
            if self._failure is not None:
                raise self._failure.fresh()
            if self.has_room(payload_bytes, count):
                return
            await self._changed.wait()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Context of the one caller that waits for room or admits a range; others wait in line."""
        # Counted from here on: a caller that got the turn may not have run yet, but came before.
        self._in_line += 1
        try:
            await self._take_turn()
            try:
                yield
            finally:
                self._pass_turn()
        finally:
            self._in_line -= 1

    async def _take_turn(self) -> None:
        if self._failure is not None:
            raise self._failure.fresh()
        if not self._is_turn_taken:
            self._is_turn_taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_turn()  # it got the turn in the loop iteration of the cancellation
            raise

    def _pass_turn(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_turn_taken = False

    def _wake(self) -> None:
        self._changed.set()  # every caller that waits now returns from `wait`
        self._changed.clear()

"""Reads of entries of a partition's ledgers, with a limited size.

Leaves the choice of entries to `log_reader`, and the reading itself to
`ledger_client.reading.reader`.

Invariants: results are views of received buffers, which stay in memory while an answer needs them;
a reader is closed only while no read uses it.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from ledger_client import LedgerClient
from ledger_client.errors import EntryLostError, LedgerError, LedgerNotFoundError
from ledger_client.reading.reader import LedgerReader
from metadata.ids import EntryId, LedgerId

READERS_MAX: Final = 4
"""Maximum number of ledgers of one log that stay open for reading; more only during reads."""
ENTRIES_PER_READ_MAX: Final = 4_096
"""Maximum number of entries of one read: many small entries cost memory and block the event loop.
"""

ReadEntry = tuple[EntryId, memoryview]


def has_room_for_another(size: int, count: int, bytes_max: int) -> bool:
    """Return whether one more entry of average size would fit; the first always does.

    `count` entries have `size` bytes in total. An entry that does not fit would be read for
    nothing.
    """
    return count == 0 or size + size / count <= bytes_max


class SegmentReaders:
    """The most recently used readers of one log's ledgers."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        self._readers: OrderedDict[LedgerId, LedgerReader] = OrderedDict()
        self._entry_bytes: dict[LedgerId, float] = {}
        self._users: dict[LedgerId, int] = {}
        self._readers_max = READERS_MAX

    async def read(
        self, ledger_id: LedgerId, first: int, last: int, bytes_max: int
    ) -> list[ReadEntry]:
        """Return entries from `first` up to `last`: at least one, and about `bytes_max` bytes.

        No entry is read that would not fit if it has the average size of the others. Small entries
        are limited by ENTRIES_PER_READ_MAX too. Entries may be beyond the LAC of the bookies: the
        caller must know that they are confirmed. Raises TopicError.
        """
        pairs: list[ReadEntry] = []
        size = 0
        async with self._reader(ledger_id) as reader:
            while (
                first <= last
                and len(pairs) < ENTRIES_PER_READ_MAX
                and has_room_for_another(size, len(pairs), bytes_max)
            ):
                until = min(last, first + self._count_for(ledger_id, bytes_max - size) - 1)
                entry_bytes = self._entry_bytes.get(ledger_id)
                read = reader.read_unconfirmed(first, until, entry_bytes=entry_bytes)
                async with aclosing(read) as batches:
                    async for batch in batches:
                        payload, offsets = batch.buffers()
                        for index in range(len(batch)):
                            data = payload[offsets[index] : offsets[index + 1]]
                            pairs.append((EntryId(batch.first_entry_id + index), data))
                        size += len(payload)
                        if size >= bytes_max:
                            break
                first = pairs[-1][0] + 1
                if entry_bytes is None or len(pairs) > 1:  # a single one may be a small state entry
                    self._entry_bytes[ledger_id] = size / len(pairs)
        return pairs

    async def last_entry_of(self, ledger_id: LedgerId) -> EntryId:
        """Return the last entry of a ledger whose end is listed. Raises TopicError."""
        async with self._reader(ledger_id) as reader:
            if not reader.is_closed:  # it was opened before the close, of which it hears later
                await reader.refresh_last_confirmed()
            last = reader.info.last_entry_id
        if last is None:
            text = (
                f"the partition's list names the end of ledger {ledger_id}, but its metadata shows "
                "it open, or cannot be read now: retry; if this lasts although the metadata "
                f"service answers, close it with quire ledger recover {ledger_id}"
            )
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text)
        return last

    async def close_reader(self, ledger_id: LedgerId) -> None:
        """Close the reader of a ledger."""
        self._entry_bytes.pop(ledger_id, None)
        reader = self._readers.pop(ledger_id, None)
        if reader is not None:
            await reader.aclose()

    async def aclose(self) -> None:
        """Close all readers, including those that a read is about to open."""
        self._readers_max = 0
        for ledger_id in list(self._readers):
            await self.close_reader(ledger_id)

    def _count_for(self, ledger_id: LedgerId, size: int) -> int:
        """Return the number of entries to request for about `size` bytes."""
        entry_bytes = self._entry_bytes.get(ledger_id)
        if entry_bytes is None:
            return 1 + size // (64 * 1024)
        return max(1, min(ENTRIES_PER_READ_MAX, int(size / max(entry_bytes, 1.0))))

    @asynccontextmanager
    async def _reader(self, ledger_id: LedgerId) -> AsyncIterator[LedgerReader]:
        """Use the reader of a ledger, which stays open during the use. Raises TopicError."""
        self._users[ledger_id] = self._users.get(ledger_id, 0) + 1
        try:
            yield await self._opened(ledger_id)
        except LedgerNotFoundError as error:
            text = (
                f"ledger {ledger_id} was deleted, and the log now starts at a later offset: read "
                "from the earliest offset"
            )
            raise TopicError(ErrorCode.OFFSET_OUT_OF_RANGE, text) from error
        except EntryLostError as error:
            text = f"records are lost for good, and reads do not skip them: {error}"
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
        except LedgerError as error:
            text = f"ledger {ledger_id} cannot be read now, retry: {error}"
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
        finally:
            self._users[ledger_id] -= 1
            if not self._users[ledger_id]:
                del self._users[ledger_id]
                await self._close_unused()

    async def _close_unused(self) -> None:
        """Close the least recently used readers above the limit."""
        unused = [reader for reader in self._readers if reader not in self._users]
        for ledger_id in unused[: max(0, len(self._readers) - self._readers_max)]:
            if ledger_id not in self._users:  # a read may have begun since
                await self.close_reader(ledger_id)

    async def _opened(self, ledger_id: LedgerId) -> LedgerReader:
        reader = self._readers.get(ledger_id)
        if reader is None:
            opened = await self._client.open_ledger(ledger_id)
            reader = self._readers.setdefault(ledger_id, opened)
            if reader is not opened:
                await opened.aclose()  # another read opened the ledger first
        if ledger_id in self._readers:
            self._readers.move_to_end(ledger_id)
        return reader

"""Load of a coordinator's state at the beginning of a leadership.

Leaves claiming the partition and recovering its last ledger to `ledger_list`, and writing to
`state_log`.

Format: an entry is one byte and a record. `S` is a part of the snapshot; `E` is its end, without a
record; `R` is a change after the snapshot. The snapshot is the whole state: nothing before it is
needed, and no change after `E` is older than it. A ledger without `E` was cut off at its beginning:
the ledger before it counts.

Invariants: nothing is loaded before the end of the newest ledger is listed; records of only one
ledger are loaded, in their order, and other work of the loop runs meanwhile.

Source: topics design, "State entries"; protocol rule 11.6.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.log_takeover import is_unreadable
from broker_layer.log.reading.segment_reading import SegmentReaders
from broker_layer.log.settings.log_config import LogConfig
from broker_layer.turns import Turns, slices
from metadata.topics.partition import PartitionRecord, PartitionSegment

SNAPSHOT: Final = b"S"
SNAPSHOT_END: Final = b"E"
CHANGE: Final = b"R"

READ_BYTES: Final = 4 * 1024 * 1024

log = logging.getLogger(__name__)


async def load_state(
    ledger_list: LedgerList, load: Callable[[bytes], None], config: LogConfig
) -> bool:
    """End the ledger that an earlier leader left open, and load the newest complete snapshot.

    Returns False if a part of the state could not be read, and an operator allowed the loss. Raises
    TopicError, LedgerError or MetadataError if the state cannot be loaded now.
    """
    is_requested = ledger_list.is_unclean_requested(config)
    info = await ledger_list.end_last(config)
    last = ledger_list.record.last_segment
    if is_requested or (last is not None and last.is_open):
        last_id = -1 if info is None else info.last_entry_id
        assert last_id is not None, "it is closed"
        size = 0 if info is None else info.length or 0
        await ledger_list.change(lambda record: _begun(record, ledger_list.epoch, last_id, size))
    readers = SegmentReaders(ledger_list.services.client)
    loading = _Loading(readers, load)
    is_whole = True
    try:
        for segment in reversed(ledger_list.record.segments):
            try:
                if await loading.load(segment):
                    break
            except TopicError as error:
                if not is_requested or not is_unreadable(error):
                    raise
                log.warning("a coordinator continues without a part of its state: %s", error.text)
                is_whole = False
                if loading.has_loaded:  # older ledgers contain older state
                    break
    finally:
        await readers.aclose()
    return is_whole


def _begun(record: PartitionRecord, epoch: int, last_id: int, size: int) -> PartitionRecord:
    """Return the list with the end of the newest ledger, and the epoch that begins there."""
    last = record.last_segment
    if last is None:
        return record.with_epoch_start(epoch, 0)
    end = last.base_offset + last_id + 1 if last.end_offset is None else last.end_offset
    if last.is_open:
        record = record.with_segment_ended(last.ledger_id, end, size, None)
    return record.with_epoch_start(epoch, end)


class _Loading:
    """The loading of one partition's state."""

    def __init__(self, readers: SegmentReaders, load: Callable[[bytes], None]) -> None:
        self._readers = readers
        self._load = load
        self.has_loaded = False
        """Whether a complete snapshot was found."""

    async def load(self, segment: PartitionSegment) -> bool:
        """Load one ledger if its snapshot is complete; return whether it is. Raises TopicError."""
        assert segment.end_offset is not None
        last = segment.end_offset - segment.base_offset - 1
        snapshot, changes = list[bytes](), list[bytes]()
        next_id = 0
        while next_id <= last:
            found = await self._readers.read(segment.ledger_id, next_id, last, READ_BYTES)
            for entry_id, data in found:
                kind, record = bytes(data[:1]), bytes(data[1:])
                if self.has_loaded:
                    changes.append(record)
                elif kind == SNAPSHOT_END:
                    self.has_loaded = True
                    await self._load_all(snapshot)
                    snapshot.clear()
                else:
                    snapshot.append(record)
                next_id = entry_id + 1
            await self._load_all(changes)
            changes.clear()
        return self.has_loaded

    async def _load_all(self, records: list[bytes]) -> None:
        """Load records; there may be hundreds of thousands, of some microseconds each."""
        turns = Turns()
        for some in slices(records):
            for record in some:
                self._load(record)
            await turns.pass_on()

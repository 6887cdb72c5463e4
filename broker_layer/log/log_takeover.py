"""Rebuild of a partition's state at the beginning of a leadership.

Leaves claiming the partition and recovering its last ledger to `ledger_list`, and the content of
the state to `partition_state`.

Entry 0 of each ledger and one entry per 64 MiB is a state entry; the entries after the last one are
replayed. So a takeover reads a limited part of the newest ledger that has entries, whatever the
log's length.

Invariants: the new epoch begins at the log's end, and the listed end of the recovered ledger agrees
with its entries; a ledger that was cut off before its state entry is removed from the list, so the
newest ledger always contains a state; nothing is served before the list is stored.

Source: topics design, "State entries" and "What a takeover does".
"""

import contextlib
import logging
from dataclasses import dataclass
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import HEADER_BYTES, RecordBatchError, read_header
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.segment_reading import SegmentReaders
from broker_layer.log.state.epoch_table import EpochTable
from broker_layer.log.state.partition_state import PartitionState
from broker_layer.log.state.state_entry import is_state_entry
from broker_layer.log.topic_configs import LogConfig
from ledger_client.errors import (
    ClientClosedError,
    LedgerError,
    LedgerNotFoundError,
    MetadataUnavailableError,
)
from ledger_client.info import LedgerInfo
from metadata.errors import MetadataError
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.topics.partition import PartitionRecord, PartitionSegment

WINDOW_ENTRIES: Final = 256
"""Number of entries in the first read, backwards from the end; each further read has twice as many.
"""
WINDOW_ENTRIES_MAX: Final = 8_192
READ_BYTES: Final = 4 * 1024 * 1024

Found = list[tuple[EntryId, bytes]]
"""Entries: complete state entries and markers, and the headers of other batches."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A partition's state at the beginning of a leadership.

    `end_offset` is the offset of the next record; `last` is the newest ledger, closed. `is_partial`
    is true if ledgers newer than the state could not be read, which an operator allowed.
    """

    state: PartitionState
    end_offset: int
    last: LedgerInfo | None
    is_partial: bool = False


async def rebuild(ledger_list: LedgerList, config: LogConfig) -> TakenOver:
    """End the ledger that an earlier leader left open, and rebuild the state at the log's end.

    Raises TopicError, LedgerError or MetadataError if this is not possible now.
    """
    is_requested = ledger_list.is_unclean_requested(config)
    info = await ledger_list.end_last(config)
    readers = SegmentReaders(ledger_list.services.client)
    unread: list[LedgerId] = []
    try:
        state = await _newest_state(ledger_list, readers, info, unread if is_requested else None)
    except RecordBatchError as error:
        text = (
            f"an entry of the newest ledger is neither a batch nor a state entry: {error}. If all "
            "brokers have this release, keep the ledger and report this"
        )
        raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
    finally:
        await readers.aclose()
    last = ledger_list.record.last_segment
    end_offset = state.next_offset

    is_empty = info is not None and info.last_entry_id == NO_ENTRY and not info.given_up

    def begun(record: PartitionRecord) -> PartitionRecord:
        if last is not None and last.is_open:
            assert info is not None
            if is_empty:  # retention may delete the others, and it must not be the only one left
                record = record.without_segment(last.ledger_id)
            else:
                record = _ended(record, last, info, state)
        return record.with_epoch_start(ledger_list.epoch, end_offset)

    record = await ledger_list.change(begun)
    if is_empty and last is not None and last.is_open:
        with contextlib.suppress(LedgerError, MetadataError):
            await ledger_list.services.client.delete_ledger(last.ledger_id)
    state.epochs = EpochTable.of(record.epochs)
    state.drop_below(record.log_start_offset)
    if not unread and (info is None or not info.given_up):
        state.await_next(ledger_list.services.wall_clock_ms())
    return TakenOver(state, end_offset, info, is_partial=bool(unread))


def _ended(
    record: PartitionRecord, last: PartitionSegment, info: LedgerInfo, state: PartitionState
) -> PartitionRecord:
    """Return the list with the end of the recovered ledger."""
    index = state.index
    is_its_index = index is not None and index.ledger_id == last.ledger_id
    max_timestamp_ms = index.max_timestamp_ms if index is not None and is_its_index else None
    end_offset, size = max(state.next_offset, last.base_offset), info.length or 0
    if info.given_up:
        return record.with_unclean_end(last.ledger_id, end_offset, size, max_timestamp_ms)
    return record.with_segment_ended(last.ledger_id, end_offset, size, max_timestamp_ms)


async def _newest_state(
    ledger_list: LedgerList,
    readers: SegmentReaders,
    info: LedgerInfo | None,
    unread: list[LedgerId] | None,
) -> PartitionState:
    """Rebuild the state from the newest ledger that has entries.

    A ledger that was cut off before its state entry has none. With `unread`, ledgers of which no
    replica answers are added to that list, and an older ledger is used.
    """
    floor = ledger_list.record.log_start_offset
    for segment in reversed(ledger_list.record.segments):
        floor = max(floor, segment.base_offset, segment.end_offset or 0)
        if info is None or info.id != segment.ledger_id:
            info = await ledger_list.services.client.ledger_info(segment.ledger_id)
        last_id = info.last_entry_id
        if last_id is None:
            text = (
                f"ledger {segment.ledger_id} is open, but is not the last one of the partition's "
                f"list: close it with quire ledger recover {segment.ledger_id}"
            )
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text)
        if last_id >= 0:
            try:
                entries = await _read_tail(readers, segment.ledger_id, last_id)
            except TopicError as error:
                if unread is None or not is_unreadable(error):
                    raise
                log.warning("a takeover continues without a ledger's state: %s", error.text)
                unread.append(segment.ledger_id)
                continue
            state = _replay(segment.ledger_id, entries, ledger_list.services.wall_clock_ms())
            if unread:
                state.next_offset = max(floor, state.next_offset)
            return state
    return PartitionState(floor)


def is_unreadable(error: TopicError) -> bool:
    """Return whether a read failed because of its bookies' answers, or because none answered."""
    cause = error.__cause__
    unknown = MetadataUnavailableError, LedgerNotFoundError, ClientClosedError
    return isinstance(cause, LedgerError) and not isinstance(cause, unknown)


def _replay(ledger_id: LedgerId, entries: Found, now_ms: int) -> PartitionState:
    entry_id, state_entry = entries[0]
    state = PartitionState.from_state_entry(state_entry, ledger_id, entry_id)
    for entry_id, data in entries[1:]:
        state.replay(entry_id, data, now_ms)
    return state


async def _read_tail(readers: SegmentReaders, ledger_id: LedgerId, last_id: EntryId) -> Found:
    """Read backwards to the last state entry; return it and the entries after it."""
    later: Found = []
    end, window = int(last_id), WINDOW_ENTRIES
    while end >= 0:
        entries: Found = []
        position = start = max(0, end - window + 1)
        while position <= end:
            for entry_id, data in await readers.read(ledger_id, position, end, READ_BYTES):
                position = entry_id + 1
                if is_state_entry(data):
                    entries = [(entry_id, bytes(data))]
                elif read_header(data).is_control:
                    entries.append((entry_id, bytes(data)))
                else:
                    entries.append((entry_id, bytes(data[:HEADER_BYTES])))
        later = entries + later
        if is_state_entry(later[0][1]):
            return later
        end, window = start - 1, min(2 * window, WINDOW_ENTRIES_MAX)
    text = (
        f"ledger {ledger_id} does not begin with a state entry: check its copies with quire ledger "
        f"verify {ledger_id}"
    )
    raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text)

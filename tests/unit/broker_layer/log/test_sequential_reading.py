"""Tests of reads from a log with read-ahead: no record beyond the read's limit is returned."""

import asyncio

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    read_header,
)
from broker_layer.log.log_reader import LogReader
from broker_layer.log.read_ahead import CURSORS_MAX, AheadMemory
from broker_layer.log.state.offset_index import LedgerIndex
from broker_layer.log.topic_log import TopicLog
from metadata.topics.partition import PartitionSegment
from tests.support.broker_layer.log_setting import LogSetting, append, batch, small, values

COUNT = 60
VALUE = b"x" * 2_000


async def filled(setting: LogSetting, **changes: int) -> TopicLog:
    """Return a log that keeps only its newest batch in memory."""
    log = await setting.take_over(1, small(**changes), tail_bytes=1)
    for _ in range(COUNT):
        await append(log, batch(VALUE))
    return log


async def read_some(log: TopicLog, offset: int, *, committed: bool = False) -> int:
    """Read a few batches; return their end offset."""
    found = await log.read(offset, 7_000, read_committed=committed, at_least_one=True)
    assert found.batches
    assert read_header(found.batches[0]).base_offset == offset
    return read_header(found.batches[-1]).last_offset + 1


async def read_one(log: TopicLog, offset: int) -> int:
    """Read one batch; return its end offset."""
    found = await log.read(offset, 1, read_committed=False, at_least_one=True)
    return read_header(found.batches[-1]).last_offset + 1


def kept_bytes(log: TopicLog) -> int:
    return log._ledger_list.services.ahead.used_bytes


async def test_sequential_read_over_several_ledgers(
    setting: LogSetting,
) -> None:
    log = await filled(setting, segment_bytes=20_000)
    assert len(log._ledger_list.record.segments) > 3
    for _ in range(2):
        offset = 0
        while offset < COUNT:
            offset = await read_some(log, offset)


async def test_many_readers_continue_without_kept_batches(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await setting.take_over(1, tail_bytes=1)
    for _ in range(3 * CURSORS_MAX):
        await append(log, batch(b"x"))
    monkeypatch.setattr(AheadMemory, "has_room", lambda _memory, _size: False)
    looked_up: list[int] = []
    find = LogReader._index_of

    async def noting(reader: LogReader, segment: PartitionSegment) -> LedgerIndex:
        looked_up.append(segment.ledger_id)
        return await find(reader, segment)

    monkeypatch.setattr(LogReader, "_index_of", noting)
    offsets = list(range(2, 2 * CURSORS_MAX + 2, 2))
    offsets = [await read_one(log, offset) for offset in offsets]
    assert len(looked_up) == CURSORS_MAX
    offsets = [await read_one(log, offset) for offset in offsets]
    assert len(looked_up) == CURSORS_MAX


async def test_deleted_records_are_not_returned_from_read_ahead(setting: LogSetting) -> None:
    log = await filled(setting)
    offset = await read_some(log, await read_some(log, 0))
    assert kept_bytes(log) > 0
    await log.delete_records(offset + 10)
    with pytest.raises(TopicError) as refusal:
        await log.read(offset, 7_000, read_committed=False, at_least_one=True)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await read_some(log, offset + 10) > offset + 10


async def test_deposed_leader_returns_nothing_read_ahead(
    setting: LogSetting,
) -> None:
    log = await filled(setting)
    offset = await read_some(log, await read_some(log, 0))
    assert kept_bytes(log) > 0
    await setting.take_over(2)
    with pytest.raises(TopicError):
        await append(log, batch(b"late"))
    with pytest.raises(TopicError) as refusal:
        await log.read(offset, 7_000, read_committed=False, at_least_one=True)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await log.aclose()
    assert kept_bytes(log) == 0


async def test_close_during_read_ahead_leaves_nothing(setting: LogSetting) -> None:
    log = await filled(setting, segment_bytes=20_000)
    offset = 0
    for _ in range(6):
        offset = await read_some(log, offset)
    await log.aclose()
    assert kept_bytes(log) == 0
    assert not [task for task in asyncio.all_tasks() if "_read_early" in repr(task.get_coro())]


async def test_read_committed_limit_applies_to_batches_read_ahead_by_others(
    setting: LogSetting,
) -> None:
    log = await setting.take_over(1, tail_bytes=1)
    for _ in range(10):
        await append(log, batch(VALUE))
    producer = Producer(9, 0, 0)
    records = [Record(0, 1_000, None, VALUE, ())]
    await append(log, build_batch(records, producer=producer, is_transactional=True))
    for _ in range(10):
        await append(log, batch(VALUE))
    offset = 0
    while offset < 9:
        offset = await read_some(log, offset)
    assert kept_bytes(log) > 0, "beyond the open transaction too"
    end = await read_some(log, offset, committed=True)
    while end < 10:
        end = await read_some(log, end, committed=True)
    assert end == 10
    held_back = await log.read(10, 7_000, read_committed=True, at_least_one=True)
    assert not held_back.batches
    marker = build_control_batch(ControlKind.ABORT, 9, 0, 3, 1_000)
    await append(log, marker, coordinator_epoch=3)
    shown = await log.read(10, 7_000, read_committed=True, at_least_one=True)
    assert shown.aborted == [(9, 10)]
    assert [each for each, _ in await values(log, 11, committed=True)] == [*range(11, 21)]


async def test_batch_without_room_is_kept_for_next_read(setting: LogSetting) -> None:
    log = await filled(setting)
    for _ in range(3):
        found = await log.read(5, 100, read_committed=False, at_least_one=False)
        assert not found.batches
    assert kept_bytes(log) > 0
    assert await read_some(log, 5) == 8

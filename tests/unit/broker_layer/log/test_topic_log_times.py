"""Tests of searches by time, and of deletion by age, size and request."""

import asyncio
from random import Random

import pytest

from broker_layer.errors import RecordsRefusedError, TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    Compression,
    Producer,
    Record,
    RecordBatchHeader,
    build_batch,
    read_header,
)
from broker_layer.kafka.record_batch.header import seal
from broker_layer.log import log_reader
from broker_layer.log.log_reader import RECORDS_AT_ONCE
from broker_layer.log.topic_log import FUTURE_MS, FutureRecords
from ledger_client import LedgerError
from metadata.ids import Version
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition import PartitionRecord
from metadata.topics.partition_store import PartitionStore
from tests.support.broker_layer.log_setting import KEY, LogSetting, append, batch, small, values


async def test_records_are_found_by_time(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(segment_bytes=2_000), tail_bytes=300)
    times = [100 + 10 * number for number in range(60)]
    times[31] = 5_000  # a single record with a later time
    for time_ms in times:
        await append(log, batch(b"x" * 50, at_ms=time_ms))
    for logs in (log, await setting.take_over(2, tail_bytes=300)):
        for wanted_ms in (0, 100, 101, 405, 650, 690, 691, 5_000):
            expected = next((n for n, at in enumerate(times) if at >= wanted_ms), None)
            found = await logs.offset_for_timestamp(wanted_ms)
            assert (None if found is None else found.offset) == expected, wanted_ms
        assert await logs.offset_for_timestamp(5_001) is None
        greatest = await logs.max_timestamp()
        assert greatest is not None
        assert (greatest.offset, greatest.timestamp_ms) == (31, 5_000)


async def test_greatest_time_is_of_visible_record(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    for at_ms in (900, 100, 500):
        await append(log, batch(b"x", at_ms=at_ms))
    await log.delete_records(1)
    greatest = await log.max_timestamp()
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp_ms) == (2, 500)


class _Time(int):
    """A time that counts how many of them are in memory."""

    now = most = 0

    def __init__(self, *_: object) -> None:
        _Time.now += 1
        _Time.most = max(_Time.most, _Time.now)

    def __del__(self) -> None:
        _Time.now -= 1


async def test_the_search_for_the_greatest_time_keeps_no_other_time(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await setting.take_over(1)
    for at_ms in (9_000, *range(200)):
        await append(log, batch(b"x", at_ms=at_ms))
    await log.delete_records(1)

    def counting(data: bytes) -> RecordBatchHeader:
        header = read_header(data)
        return header._replace(max_timestamp_ms=_Time(header.max_timestamp_ms))

    monkeypatch.setattr(log_reader, "read_header", counting)
    greatest = await log.max_timestamp()
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp_ms) == (200, 199)
    assert 0 < _Time.most < 10


async def test_records_within_a_batch_are_found_by_time(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    records = [Record(n, at, None, b"v", ()) for n, at in enumerate((10, 30, 20, 40))]
    await append(log, build_batch(records))
    found = [await log.offset_for_timestamp(at) for at in (5, 11, 31, 41)]
    assert [None if position is None else position.offset for position in found] == [0, 1, 3, None]


async def test_no_header_is_read_to_find_or_check_a_time(setting: LogSetting) -> None:
    """One record can have millions of headers. A damaged one shows whether they are read."""
    log = await setting.take_over(1, small(timestamp_after_max_ms=1_000))
    records = [Record(n, at, None, b"v", (("name", b""),)) for n, at in enumerate((10, 30))]
    data = build_batch(records)
    data[data.index(b"name") - 1] ^= 0xFF  # the length of the name
    seal(data)
    await append(log, data)
    found = await log.offset_for_timestamp(20)
    assert found is not None
    assert found.offset == 1
    setting.now_ms = -980
    with pytest.raises(RecordsRefusedError) as refused:
        append(log, data)
    assert [record.position for record in refused.value.records] == [1]


async def test_first_record_is_returned_for_batch_too_large_to_open(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await setting.take_over(1)
    times = (10, 30, 20, 40)
    await append(log, build_batch([Record(n, at, None, b"v", ()) for n, at in enumerate(times)]))
    packed = [Record(n, at + 100, None, b"v" * 500, ()) for n, at in enumerate(times)]
    await append(log, build_batch(packed, compression=Compression.ZSTD))
    monkeypatch.setattr(log_reader, "OPENED_RECORDS_MAX", 3)
    found = [await log.offset_for_timestamp(at) for at in (31, 131)]
    assert [
        None if position is None else (position.offset, position.timestamp_ms) for position in found
    ] == [
        (0, 40),
        (4, 140),
    ]
    monkeypatch.setattr(log_reader, "OPENED_RECORDS_MAX", 4)
    monkeypatch.setattr(log_reader, "OPENED_BYTES_MAX", 1_000)
    found = [await log.offset_for_timestamp(at) for at in (31, 131)]
    assert [
        None if position is None else (position.offset, position.timestamp_ms) for position in found
    ] == [
        (3, 40),
        (4, 140),
    ]


async def test_search_by_time_yields_to_other_tasks(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    records = [Record(n, 10, None, b"v", ()) for n in range(RECORDS_AT_ONCE * 5)]
    await append(log, build_batch([*records, Record(len(records), 20, None, b"v", ())]))
    await log.offset_for_timestamp(20)
    turns = 0
    search = asyncio.ensure_future(log.offset_for_timestamp(20))
    while not search.done():
        await asyncio.sleep(0)
        turns += 1
    found = search.result()
    assert found is not None
    assert found.offset == len(records)
    assert turns > 5


async def test_retention_deletes_oldest_ledgers(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(segment_bytes=2_000), tail_bytes=300)
    for number in range(60):
        await append(log, batch(b"x" * 100, at_ms=1_000 + number))
    before, _ = await _record(setting)
    log.set_config(small(segment_bytes=2_000, retention_bytes=4_500))
    assert await log.enforce_retention(setting.now_ms) > 0
    after, _ = await _record(setting)
    gone = [segment for segment in before.segments if segment not in after.segments]
    assert gone == list(before.segments[: len(gone)])
    assert log.log_start_offset == after.segments[0].base_offset == after.log_start_offset
    with pytest.raises(TopicError) as refusal:
        await values(log)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await values(log, log.log_start_offset))[-1][0] == 59
    client = setting.cluster.client()
    with pytest.raises(LedgerError, match="does not exist"):
        await client.ledger_info(gone[0].ledger_id)
    next_leader = await setting.take_over(2)
    assert next_leader.log_start_offset == log.log_start_offset


async def test_retention_by_time_keeps_newest_ledger(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(retention_ms=10_000))
    await append(log, batch(b"old", producer=Producer(7, 0, 0), at_ms=setting.now_ms))
    await append(log, batch(b"old", producer=Producer(7, 0, 1), at_ms=setting.now_ms))
    setting.now_ms += 20_000
    for _ in range(50):
        await log.enforce_retention(setting.now_ms)
        await asyncio.sleep(0.01)
        if log.log_start_offset == 2:
            break
    assert log.log_start_offset == log.high_watermark == 2
    after = await setting.take_over(2)
    assert after.log_end_offset == 2
    with pytest.raises(TopicError):
        await append(after, batch(b"x", producer=Producer(7, 0, 5)))
    assert (await append(after, batch(b"new", producer=Producer(7, 0, 2)))).base_offset == 2


async def test_times_in_the_future_that_hold_up_retention_are_reported(
    setting: LogSetting, caplog: pytest.LogCaptureFixture
) -> None:
    log = await setting.take_over(1, small(retention_ms=10_000, segment_bytes=2_000))
    await append(log, batch(b"regular", at_ms=setting.now_ms + FUTURE_MS))
    await log.enforce_retention(setting.now_ms)
    assert log.future is None
    future_ms = setting.now_ms + 10 * FUTURE_MS
    while len(log.ended_ledgers) < 2:
        await append(log, batch(b"x" * 500, at_ms=future_ms))
    for _ in range(2):
        await log.enforce_retention(setting.now_ms)
    lines = [line for line in caplog.messages if "retention waits for times in the fut" in line]
    assert len(lines) == 1
    assert f"log=orders-0 offset=0 until_ms={future_ms + 10_000}" in lines[0]
    assert log.future == FutureRecords(0, future_ms + 10_000)
    after = await setting.take_over(2, small(retention_ms=10_000))
    await after.enforce_retention(setting.now_ms)
    assert after.future == log.future
    after.set_config(small(retention_ms=None))  # type: ignore[arg-type]
    await after.enforce_retention(setting.now_ms)
    assert after.future is None
    after.set_config(small(retention_ms=10_000))
    await after.enforce_retention(future_ms)
    assert after.future is None


async def test_delete_records_moves_log_start(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    for value in (b"a", b"b", b"c"):
        await append(log, batch(value))
    assert await log.delete_records(1) == 1
    assert await log.delete_records(0) == 1
    with pytest.raises(TopicError) as refusal:
        await log.delete_records(4)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await log.delete_records(-1) == 3
    after = await setting.take_over(2)
    assert (after.log_start_offset, after.high_watermark) == (3, 3)


async def test_append_time_is_set_for_every_record(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(uses_append_time=True))
    setting.now_ms = 777_000
    answer = await append(log, batch(b"a", at_ms=5))
    assert answer.log_append_time_ms == 777_000
    found = await log.offset_for_timestamp(776_000)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (0, 777_000)


async def _record(setting: LogSetting) -> tuple[PartitionRecord, Version]:
    store = MemoryMetadataStore(setting.cluster.server)
    return await PartitionStore(store, Random(1)).get(KEY)

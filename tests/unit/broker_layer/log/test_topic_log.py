"""Tests of offsets, epochs and commit of a partition's log across ledgers and leaders."""

import asyncio
from random import Random

import pytest

from bookie.wire.messages import Status
from broker_layer.errors import RecordsRefusedError, TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    read_header,
)
from broker_layer.log.log_services import DEFERRED_BYTES_MAX
from broker_layer.log.topic_log import TopicLog
from metadata.ids import Version
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition import PartitionRecord
from metadata.topics.partition_store import PartitionStore
from tests.support.broker_layer.log_setting import KEY, LogSetting, append, batch, small, values


async def test_batches_get_consecutive_offsets_and_are_read_complete(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    answers = [append(log, batch(b"a", b"b")), append(log, batch(b"c"))]
    assert [(await answer).base_offset for answer in answers] == [0, 2]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 3, 3)
    assert await values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert await values(log, 1) == [(0, b"a"), (1, b"b"), (2, b"c")]
    result = await log.read(2, 1, read_committed=False, at_least_one=True)
    assert [read_header(each).leader_epoch for each in result.batches] == [1]


async def test_batch_is_invisible_before_commit(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_layer.log.topic_log.DRAIN_S", 0.05)
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    for bookie in setting.cluster.bookies:
        bookie.is_silent = True
    answer = append(log, batch(b"b"))
    await asyncio.sleep(0.05)
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    assert await values(log) == [(0, b"a")]
    assert not answer.done()
    for bookie in setting.cluster.bookies:
        bookie.is_silent = False


async def test_read_outside_of_log_offsets(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    for offset in (-1, 2):
        with pytest.raises(TopicError) as refusal:
            await log.read(offset, 1, read_committed=False, at_least_one=True)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await values(log, 1) == []


@pytest.mark.parametrize("by_time", [False, True])
async def test_an_entry_that_is_no_batch_is_reported(setting: LogSetting, *, by_time: bool) -> None:
    log = await setting.take_over(1, tail_bytes=1)
    await append(log, batch(b"a"))
    assert log._roller.ledger is not None
    log._roller.ledger.writer.append_followed(b"of an unknown kind")
    await append(log, batch(b"b"))
    with pytest.raises(TopicError, match="neither a batch nor a state entry") as refusal:
        await (log.offset_for_timestamp(10**6) if by_time else values(log))
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_next_leader_continues_at_log_end(setting: LogSetting) -> None:
    first = await setting.take_over(1)
    for value in (b"a", b"b", b"c"):
        await append(first, batch(value))
    second = await setting.take_over(2)
    assert second.high_watermark == second.log_end_offset == 3
    assert (await append(second, batch(b"d"))).base_offset == 3
    assert [value for _, value in await values(second)] == [b"a", b"b", b"c", b"d"]
    with pytest.raises(TopicError) as refusal:
        await append(first, batch(b"stale"))
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert first.failure is not None
    assert setting.failed == [1]
    assert [value for _, value in await values(second)] == [b"a", b"b", b"c", b"d"]


async def test_epoch_is_claimed_once(setting: LogSetting) -> None:
    await setting.take_over(5)
    for epoch in (5, 4):
        with pytest.raises(TopicError) as refusal:
            await setting.take_over(epoch)
        assert refusal.value.code is ErrorCode.FENCED_LEADER_EPOCH


async def test_end_offsets_of_epochs(setting: LogSetting) -> None:
    first = await setting.take_over(1)
    await append(first, batch(b"a", b"b"))
    await setting.take_over(3)  # appends nothing
    last = await setting.take_over(4)
    await append(last, batch(b"c"))
    ends = [last.end_offset_of_epoch(epoch) for epoch in (1, 2, 3, 4, 5)]
    assert ends == [(1, 2), (1, 2), (3, 2), (4, 3), (-1, -1)]


async def test_roll_loses_no_record(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(segment_bytes=4_000), tail_bytes=500)
    wanted = []
    for number in range(120):
        value = b"%06d" % number * 20
        answer = await append(log, batch(value))
        wanted.append((answer.base_offset, value))
    assert [offset for offset, _ in wanted] == list(range(120))
    assert await values(log) == wanted
    assert await values(log, bytes_max=1_000) == wanted
    record, _ = await _record(setting)
    assert len(record.segments) > 3
    ends = [segment.end_offset for segment in record.segments[:-1]]
    assert ends == [segment.base_offset for segment in record.segments[1:]]
    after = await setting.take_over(2, tail_bytes=500)
    assert await values(after) == wanted
    for offset in (0, 1, 59, 118, 119):
        assert (await values(after, offset))[0] == wanted[offset]


async def test_closed_log_is_taken_over_without_recovery(
    setting: LogSetting,
) -> None:
    log = await setting.take_over(1)
    answer = append(log, batch(b"a"))
    await log.aclose()
    assert (await answer).base_offset == 0
    record, _ = await _record(setting)
    assert [segment.end_offset for segment in record.segments] == [1]
    assert setting.failed == []
    after = await setting.take_over(2)
    assert await values(after) == [(0, b"a")]


async def test_duplicate_batch_gets_first_offset(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    data = batch(b"a", b"b", producer=Producer(7, 0, 0))
    first, again = append(log, data), append(log, data)
    assert not again.done(), "the first one is not committed yet"
    assert (await first).base_offset == (await again).base_offset == 0
    assert log.log_end_offset == 2
    after = await setting.take_over(2)
    assert (await append(after, data)).base_offset == 0
    with pytest.raises(TopicError) as refusal:
        append(after, batch(b"x", producer=Producer(7, 0, 5)))
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    following = append(after, batch(b"c", producer=Producer(7, 0, 2)))
    assert (await following).base_offset == 2


async def test_open_transaction_limits_read_committed(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"plain"))
    await append(log, _transactional(b"open", 9, 0))
    await append(log, batch(b"behind"))
    assert log.last_stable_offset == 1
    assert log.has_open_transaction(9, 0)
    assert await values(log, committed=True) == [(0, b"plain")]
    after = await setting.take_over(2)
    assert after.last_stable_offset == 1
    marker = build_control_batch(ControlKind.ABORT, 9, 0, 3, 1_000)
    await append(after, marker, coordinator_epoch=3)
    assert after.last_stable_offset == 4
    result = await after.read(0, 1 << 20, read_committed=True, at_least_one=True)
    assert result.aborted == [(9, 1)]
    with pytest.raises(TopicError) as refusal:
        append(after, build_control_batch(ControlKind.COMMIT, 9, 0, 2, 1_000), coordinator_epoch=2)
    assert refusal.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_log_without_enough_bookies_refuses_and_recovers(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    for bookie in setting.cluster.bookies[1:]:
        await bookie.unregister()
    await asyncio.sleep(0.05)
    other = small(segment_bytes=10)
    log.set_config(other)
    with pytest.raises(TopicError) as refusal:
        fresh = await setting.take_over(2)
        await append(fresh, batch(b"a"))
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    for bookie in setting.cluster.bookies[1:]:
        await bookie.register(MemoryMetadataStore(setting.cluster.server))
    for _ in range(200):
        if not await _is_refused(fresh):
            break
        await asyncio.sleep(0.02)
    assert await values(fresh) == [(0, b"a")]


async def test_fenced_ledger_ends_log(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    told: list[int] = []
    log.on_progress(lambda: told.append(log.high_watermark))
    for bookie in setting.cluster.bookies:
        bookie.refuse_adds = Status.FENCED
    with pytest.raises(TopicError) as refusal:
        await append(log, batch(b"b"))
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert setting.failed == [1]
    assert told, "waiters are called"
    with pytest.raises(TopicError):
        await log.read(0, 1, read_committed=False, at_least_one=True)


async def test_pending_bytes_are_limited(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_layer.log.topic_log.DRAIN_S", 0.05)
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    assert log.has_room
    for bookie in setting.cluster.bookies:
        bookie.is_silent = True
    while log.has_room:
        append(log, batch(b"x" * 1_000_000))
    waiting = asyncio.ensure_future(log.wait_for_room(1))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await log.aclose()
    await waiting


async def test_bytes_that_wait_for_a_ledger_are_limited(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = setting.services()
    monkeypatch.setattr(setting, "services", lambda *_: services)
    services.deferred.change(DEFERRED_BYTES_MAX - 1_000_000)  # of other logs
    log = await setting.take_over(1)
    waiting = [append(log, batch(b"x" * 400_000)) for _ in range(2)]
    with pytest.raises(TopicError, match="take all memory") as refusal:
        append(log, batch(b"x" * 400_000))
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    marker = build_control_batch(ControlKind.COMMIT, 7, 0, 3, 1_000)
    assert (await append(log, marker, coordinator_epoch=3)).base_offset == len(waiting)
    await append(log, batch(b"x" * 400_000))
    assert services.deferred.used_bytes == DEFERRED_BYTES_MAX - 1_000_000
    services.deferred.change(1_000_000)
    other = await setting.take_over(2)
    append(other, batch(b"the first one always waits"))
    with pytest.raises(TopicError, match="take all memory"):
        append(other, batch(b"y"))
    await other.aclose()
    assert services.deferred.used_bytes == DEFERRED_BYTES_MAX, "a log that ends lets none wait"


async def test_a_batch_that_waits_for_a_ledger_keeps_no_large_frame(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    data = batch(b"x")
    for frame_bytes in (2 * len(data), 100 * len(data)):
        frame = bytearray(frame_bytes)
        frame[: len(data)] = data
        append(log, memoryview(frame)[: len(data)])
    small_frame, large_frame = (deferred_batch.data for deferred_batch in log._appender._deferred)
    assert isinstance(small_frame, memoryview), "it is not copied"
    assert isinstance(large_frame, bytes)
    assert large_frame == small_frame == data


async def test_a_small_batch_waits_behind_a_large_one_that_has_no_room(setting: LogSetting) -> None:
    log = await setting.take_over(1, window_bytes_max=10_000)
    await append(log, batch(b"x"))  # a ledger is open from now on
    sizes = (4_000, 9_000, 1, 9_000, 1)
    answers = [append(log, batch(b"x" * size)) for size in sizes]
    assert [(await answer).base_offset for answer in answers] == [1, 2, 3, 4, 5]
    assert [len(value) for _, value in await values(log, 1)] == list(sizes)


@pytest.mark.parametrize("seed", range(6))
async def test_acknowledged_batches_survive_leader_changes(setting: LogSetting, seed: int) -> None:
    """Leaders replace each other at random times, some after a close and some without."""
    rng = Random(seed)
    config = small(segment_bytes=3_000)
    answered: dict[int, bytes] = {}
    epoch, number = 1, 0
    log = await setting.take_over(epoch, config, tail_bytes=2_000)
    for _ in range(12):
        answers = []
        for _ in range(rng.randrange(1, 25)):
            value = b"%d" % number * rng.randrange(1, 60)
            number += 1
            answers.append((value, append(log, batch(value))))
            if rng.random() < 0.3:
                await asyncio.sleep(0)
        if rng.random() < 0.5:
            await asyncio.gather(*[future for _, future in answers])
        elif rng.random() < 0.5:
            await log.aclose()
        epoch += rng.randrange(1, 3)
        after = await setting.take_over(epoch, config, tail_bytes=2_000)
        done = await asyncio.gather(*[future for _, future in answers], return_exceptions=True)
        for (value, _), outcome in zip(answers, done, strict=True):
            if not isinstance(outcome, BaseException):
                assert outcome.base_offset not in answered
                answered[outcome.base_offset] = value
        log = after
        found = dict(await values(log))
        assert all(found[offset] == value for offset, value in answered.items())
        assert list(found) == list(range(len(found)))


async def _is_refused(log: TopicLog) -> bool:
    try:
        await append(log, batch(b"a"))
    except TopicError as error:
        return error.code is ErrorCode.NOT_ENOUGH_REPLICAS
    return False


def _transactional(value: bytes, producer_id: int, sequence: int) -> bytearray:
    records = [Record(0, 1_000, None, value, ())]
    return build_batch(records, producer=Producer(producer_id, 0, sequence), is_transactional=True)


async def _record(setting: LogSetting) -> tuple[PartitionRecord, Version]:
    store = MemoryMetadataStore(setting.cluster.server)
    return await PartitionStore(store, Random(1)).get(KEY)


async def test_batches_out_of_limits_are_refused(setting: LogSetting) -> None:
    bounds = small(max_message_bytes=200, timestamp_before_max_ms=1_000, timestamp_after_max_ms=500)
    log = await setting.take_over(1, bounds)
    now = setting.now_ms
    assert (await append(log, batch(b"fits", at_ms=now))).base_offset == 0
    for data, code in (
        (batch(b"x" * 300, at_ms=now), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"x", at_ms=now + 501), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"x", at_ms=now - 1_001), ErrorCode.INVALID_TIMESTAMP),
    ):
        with pytest.raises(TopicError) as refusal:
            append(log, data)
        assert refusal.value.code is code
    assert log.log_end_offset == 1


async def test_records_with_wrong_times_are_named(setting: LogSetting) -> None:
    bounds = small(timestamp_before_max_ms=1_000, timestamp_after_max_ms=500)
    log = await setting.take_over(1, bounds)
    now = setting.now_ms
    for times, wrong in (([now, now + 501, now + 9_000], [1, 2]), ([now - 1_001, now], [0])):
        records = [Record(at, time_ms, None, b"") for at, time_ms in enumerate(times)]
        with pytest.raises(RecordsRefusedError) as refusal:
            append(log, build_batch(records))
        assert refusal.value.code is ErrorCode.INVALID_TIMESTAMP
        assert [record.position for record in refusal.value.records] == wrong
    damaged = build_batch([Record(0, now + 501, None, b"")])
    damaged[-2] = 99  # the length of the value
    with pytest.raises(RecordsRefusedError) as refusal:
        append(log, damaged)
    assert not refusal.value.records


async def test_compacted_topic_requires_keys(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(is_compacted=True))
    keys = [None, b"key", None]
    with pytest.raises(RecordsRefusedError) as refusal:
        append(log, build_batch([Record(at, 1_000, key, b"") for at, key in enumerate(keys)]))
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert [record.position for record in refusal.value.records] == [0, 2]
    keyed = build_batch([Record(0, 1_000, b"key", b"value")])
    assert (await append(log, keyed)).base_offset == 0


async def test_delete_records_of_compacted_topic_is_refused(
    setting: LogSetting,
) -> None:
    log = await setting.take_over(1, small(is_compacted=True, is_deletable=False))
    await append(log, build_batch([Record(0, 1_000, b"key", b"value")]))
    with pytest.raises(TopicError) as refusal:
        await log.delete_records(1)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    log.set_config(small(is_compacted=True))
    assert await log.delete_records(1) == 1


async def test_waits_for_one_needs_one_copy(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_layer.log.topic_log.DRAIN_S", 0.05)
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    others = [
        storing_bookie
        for storing_bookie in setting.cluster.bookies
        if storing_bookie.id in log.replicas
    ][1:]
    for bookie in others:
        bookie.is_silent = True
    data = batch(b"b")
    answer = await log.append(read_header(data), data, waits_for_one=True)
    assert answer.base_offset == 1
    assert log.high_watermark == 1, "not committed: the ack quorum is two"
    for bookie in others:
        bookie.is_silent = False


async def test_waits_for_one_fails_when_log_ends(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    first = batch(b"a")
    answer = await log.append(read_header(first), first, waits_for_one=True)
    assert answer.base_offset == 0
    for bookie in setting.cluster.bookies:
        bookie.refuse_adds = Status.FENCED
    second = batch(b"b")
    with pytest.raises(TopicError) as refusal:
        await log.append(read_header(second), second, waits_for_one=True)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

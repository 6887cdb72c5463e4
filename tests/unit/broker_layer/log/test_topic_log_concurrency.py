"""Tests of a partition's log with cancelled calls, closed stores, and concurrent changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from random import Random

import pytest

from bookie.wire.batch import BatchView
from bookie.wire.frames import Frame
from bookie.wire.messages import Status
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Producer
from broker_layer.log.segment_reading import READERS_MAX, SegmentReaders
from broker_layer.log.topic_log import TopicLog
from ledger_client import Quorum
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import StoreClosedError, StoreUnavailableError
from metadata.ids import LedgerId
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import NoFaults, StoreCall
from metadata.topics.partition_store import PartitionStore
from quire.server.overriding import override
from tests.support.broker_layer.log_setting import KEY, LogSetting, append, batch, small, values
from tests.support.ledger_client.cluster import TestCluster
from tests.until import until


class Gate(NoFaults):
    """Gate that delays writes of the partition's list, before or after they apply."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.waits = asyncio.Event()
        self.holds_answers = False
        self.refuses = False
        self.held_session: int | None = None

    @override
    async def before(self, call: StoreCall) -> None:
        if self.refuses and call.is_write:
            raise StoreUnavailableError(call.path, "refused")
        if not self.holds_answers:
            await self._hold(call)

    @override
    async def after(self, call: StoreCall) -> None:
        if self.holds_answers:
            await self._hold(call)

    async def _hold(self, call: StoreCall) -> None:
        is_meant = call.is_write and "partitions" in call.path and not self.is_open.is_set()
        if is_meant and self.held_session in (None, call.session_id):
            self.held_session = call.session_id
            self.waits.set()
            await self.is_open.wait()
        await asyncio.sleep(0)


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def setting(gate: Gate) -> AsyncIterator[LogSetting]:
    cluster = TestCluster(gate)
    for _ in range(4):
        await cluster.add_bookie()
    setting = LogSetting(cluster)
    yield setting
    gate.is_open.set()
    await setting.aclose()
    await cluster.aclose()


async def test_cancelled_delete_records_does_not_end_log(setting: LogSetting, gate: Gate) -> None:
    log = await setting.take_over(1, small(segment_bytes=2_000))
    for _ in range(5):
        await append(log, batch(b"x" * 50))
    gate.holds_answers = True
    gate.is_open.clear()
    deletion = asyncio.create_task(log.delete_records(3))
    await gate.waits.wait()
    deletion.cancel()
    await asyncio.gather(deletion, return_exceptions=True)
    gate.is_open.set()
    for _ in range(60):
        await append(log, batch(b"x" * 50))
    assert log.failure is None
    assert setting.failed == []
    assert log.log_start_offset == 3


async def test_cancelled_delete_records_completes(setting: LogSetting, gate: Gate) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    starts: list[int] = []
    log.on_progress(lambda: starts.append(log.log_start_offset))
    gate.is_open.clear()
    deletion = asyncio.create_task(log.delete_records(1))
    await gate.waits.wait()
    deletion.cancel()
    await asyncio.gather(deletion, return_exceptions=True)
    gate.is_open.set()
    await until(lambda: 1 in starts)


async def test_cancelled_change_of_deposed_leader_ends_log(setting: LogSetting, gate: Gate) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    await setting.take_over(2)
    gate.is_open.clear()
    deletion = asyncio.create_task(log.delete_records(1))
    await gate.waits.wait()
    deletion.cancel()
    await asyncio.gather(deletion, return_exceptions=True)
    gate.is_open.set()
    await until(lambda: log.failure is not None)
    assert setting.failed == [1]


async def test_delete_records_is_refused_without_metadata_service(
    setting: LogSetting, gate: Gate
) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    gate.refuses = True
    with pytest.raises(TopicError) as refusal:
        await log.delete_records(1)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    gate.refuses = False
    assert await log.delete_records(1) == 1


async def test_log_ends_when_another_leader_changed_its_list(
    setting: LogSetting,
) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    await setting.take_over(2)
    with pytest.raises(TopicError) as refusal:
        await log.delete_records(1)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.failure is not None
    assert setting.failed == [1]


async def test_first_ledger_that_may_be_listed_is_closed_and_kept(
    setting: LogSetting, gate: Gate
) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    second = await setting.take_over(2)
    gate.is_open.clear()
    answer = append(second, batch(b"b"))
    await gate.waits.wait()
    third = await setting.take_over(3)
    gate.is_open.set()
    with pytest.raises(TopicError):
        await answer
    await second.aclose()
    client = third._ledger_list.services.client
    states = [info.is_closed async for info in client.list_ledgers()]
    assert states == [True, True]


async def test_close_after_store_close_does_not_wait(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"a"))
    closed = asyncio.get_running_loop().create_future()

    async def refuse(*_: object, **__: object) -> None:
        if not closed.done():
            closed.set_result(None)
        raise StoreClosedError

    log._ledger_list.services.partitions.compare_and_set = refuse  # type: ignore[assignment]
    async with asyncio.timeout(8):
        await log.aclose()
    assert closed.done()
    assert log.failure is not None


async def test_read_continues_after_ledger_is_closed(
    setting: LogSetting,
) -> None:
    log = await setting.take_over(1, small(segment_bytes=2_000), tail_bytes=200)
    wanted = []
    for number in range(60):
        value = b"%03d" % number * 20
        wanted.append(((await append(log, batch(value))).base_offset, value))
        assert await values(log) == wanted
        assert await values(log, number // 2) == wanted[number // 2 :]


async def test_readers_in_use_are_not_closed(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(segment_bytes=1_000))
    for number in range(60):
        await append(log, batch(b"%03d" % number * 20))
    await log.aclose()
    record, _ = await _record(setting)
    ledgers = [segment.ledger_id for segment in record.segments]
    assert len(ledgers) > READERS_MAX + 2
    readers = SegmentReaders(setting.services().client)

    async def read(ledger_id: LedgerId) -> int:
        last = await readers.last_entry_of(ledger_id)
        return len(await readers.read(ledger_id, 0, last, 1 << 20))

    try:
        for _ in range(5):
            counts = await asyncio.gather(*[read(ledger) for ledger in ledgers])
            assert min(counts) >= 1
    finally:
        await readers.aclose()


class LateWatches(NoFaults):
    """Reports changes a minute later."""

    @override
    def watch_delay_s(self, path: str) -> float:
        del path
        return 60.0


async def test_a_ledger_is_read_whose_close_was_not_reported_yet(setting: LogSetting) -> None:
    setting.cluster.server.faults = LateWatches()
    log = await setting.take_over(1, small(segment_bytes=1_000), tail_bytes=1)
    wanted: list[bytes] = []
    while not log.ended_ledgers:
        wanted.append(b"%03d" % len(wanted) * 20)
        await append(log, batch(wanted[-1]))
        read = await values(log)  # its reader is opened while it is written
        assert [value for _, value in read] == wanted
    await append(log, batch(b"newest"))
    assert [value for _, value in await values(log)] == [*wanted, b"newest"]


async def test_deletion_of_old_ledgers_does_not_block_roll(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await setting.take_over(1, small(segment_bytes=2_000))
    for _ in range(60):
        await append(log, batch(b"x" * 50))
    await log.delete_records(-1)
    ledger_list = log._ledger_list
    client = ledger_list.services.client
    is_deleting, resume = asyncio.Event(), asyncio.Event()
    delete = client.delete_ledger

    async def slow(ledger_id: int, *, timeout: float | None = None) -> None:
        is_deleting.set()
        await resume.wait()
        await delete(ledger_id, timeout=timeout)

    monkeypatch.setattr(client, "delete_ledger", slow)
    retention = asyncio.create_task(log.enforce_retention(setting.now_ms))
    await is_deleting.wait()
    async with asyncio.timeout(20):
        for _ in range(60):
            await append(log, batch(b"x" * 50))
    resume.set()
    assert await retention > 0
    record, _ = await _record(setting)
    assert sorted([info.id async for info in client.list_ledgers()]) == [
        *[segment.ledger_id for segment in record.segments],
        *([] if log._roller._next is None else [log._roller._next.id]),
    ]
    assert log.failure is None


async def _record(setting: LogSetting):  # type: ignore[no-untyped-def]
    store = MemoryMetadataStore(setting.cluster.server)
    return await PartitionStore(store, Random(1)).get(KEY)


async def _prepared(log: TopicLog) -> LedgerWriter:
    """Write until the next ledger is created, and the current one is not full."""
    while log._roller._next is None:
        await append(log, batch(b"x" * 30))
        await asyncio.sleep(0)
    return log._roller._next


async def test_failed_next_ledger_is_not_used(
    setting: LogSetting,
) -> None:
    log = await setting.take_over(1, small(segment_bytes=4_000))
    for _ in range(3):
        await (await _prepared(log)).abort()
        for _ in range(60):
            await append(log, batch(b"x" * 30))
    assert log.failure is None
    await log.aclose()
    client = setting.services().client
    record, _ = await _record(setting)
    listed = [segment.ledger_id for segment in record.segments]
    assert [info.id async for info in client.list_ledgers()] == listed


async def test_changed_replication_begins_with_next_ledger(setting: LogSetting) -> None:
    log = await setting.take_over(1, small(segment_bytes=4_000))
    await _prepared(log)
    log.set_config(replace(log.config, quorum=Quorum(2, 2, 2)))
    ledger_id = log._roller.ledger.writer.id if log._roller.ledger is not None else None
    while log._roller.ledger is not None and log._roller.ledger.writer.id == ledger_id:
        await append(log, batch(b"x" * 30))
    assert log._roller.ledger is not None
    assert log._roller.ledger.writer.admission.quorum.ensemble_size == 2


async def test_producers_are_kept_when_only_empty_ledger_would_remain(
    setting: LogSetting,
) -> None:
    first = await setting.take_over(1)
    data = batch(b"a", producer=Producer(7, 0, 0))
    await append(first, data)
    second = await setting.take_over(2)
    for bookie in setting.cluster.bookies:
        bookie.refuse_adds = Status.FENCED
    with pytest.raises(TopicError):
        await append(second, batch(b"b", producer=Producer(7, 0, 1)))
    for bookie in setting.cluster.bookies:
        bookie.refuse_adds = None
    third = await setting.take_over(3)
    await third.delete_records(-1)
    await third.enforce_retention(setting.now_ms)
    fourth = await setting.take_over(4)
    assert (await append(fourth, data)).base_offset == 0, "it is a duplicate, though deleted"
    assert (await append(fourth, batch(b"b", producer=Producer(7, 0, 1)))).base_offset == 1
    assert await values(fourth, 1) == [(1, b"b")]
    client = setting.services().client
    record, _ = await _record(setting)
    listed = [segment.ledger_id for segment in record.segments]
    assert [info.id async for info in client.list_ledgers()] == listed


async def test_retention_keeps_the_only_ledger_whose_state_is_confirmed(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await setting.take_over(1, small(segment_bytes=1_500))
    last = batch(b"a" * 100, producer=Producer(7, 0, 0))
    offset = (await append(log, last)).base_offset
    assert log._roller.ledger is not None
    first_ledger = log._roller.ledger.writer.id
    for bookie in setting.cluster.bookies:
        monkeypatch.setattr(bookie, "answer_add", _answers_for(first_ledger, bookie.answer_add))
    sequence = 1
    while log._roller.ledger is not None and log._roller.ledger.writer.id == first_ledger:
        last = batch(b"a" * 100, producer=Producer(7, 0, sequence))
        offset = (await append(log, last)).base_offset
        sequence += 1
    await until(lambda: log.ended_ledgers == [first_ledger])
    await log.delete_records(-1)
    assert await log.enforce_retention(setting.now_ms) == 0
    monkeypatch.undo()
    second = await setting.take_over(2)
    assert (await append(second, last)).base_offset == offset, "it is a duplicate, though deleted"
    await append(second, batch(b"b", producer=Producer(7, 0, sequence)))
    assert await second.enforce_retention(setting.now_ms) == 1, "the next ledger has the state"


def _answers_for(
    ledger_id: LedgerId, answer_add: Callable[[Frame], bytes]
) -> Callable[[Frame], bytes]:
    """Return a bookie's `answer_add` that neither stores nor answers adds to other ledgers."""

    def answer(frame: Frame) -> bytes:
        is_meant = BatchView(frame.body).header.ledger_id == ledger_id
        return answer_add(frame) if is_meant else b""

    return answer

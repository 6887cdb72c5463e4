"""The planned records of a partition are those of its log, whatever its ledgers, leaders and
transactions were.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest

from broker_layer.kafka.record_batch import (
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    parse_records,
    read_header,
)
from broker_layer.log.state.state_entry import is_state_entry
from broker_layer.log.topic_log import TopicLog
from ledger_client import ClientConfig
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.topic import TopicId, new_topic
from spark_io.common_options import ClientOptions
from spark_io.errors import (
    RecordsLostError,
    RecordsUnreadableError,
    RecreatedError,
    UnknownTopicError,
)
from spark_io.offsets import IDS_KEY, FollowedSource, MicroBatchLimits, Offset
from spark_io.topics.access import TopicServices
from spark_io.topics.offsets import AbortedRecords, Bounds, TopicPartition, TopicRange
from spark_io.topics.options import TopicReadOptions
from spark_io.topics.partitions import TopicsView
from spark_io.topics.ranges import RangeFinder
from tests.support.broker_layer.log_setting import CONFIG, KEY, LogSetting, append, small
from tests.support.ledger_client.cluster import TestCluster

ORDERS = TopicPartition("orders", 0)
CLIENT = ClientOptions("zk://memory:1/", b"", ClientConfig(lac_delay_s=0.01))


@dataclass
class Written:
    """A partition's log, and the records that readers must see."""

    setting: LogSetting
    services: TopicServices
    epoch: int = 0
    values: dict[int, bytes] = field(default_factory=dict)
    by_producer: dict[int, list[int]] = field(default_factory=dict)
    aborted: list[int] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)

    async def lead(self) -> None:
        for log in self.setting.logs:
            await log.aclose()
        self.setting.logs.clear()
        self.epoch += 1
        await self.setting.take_over(self.epoch, small(segment_bytes=2_000))

    async def write(self, values: list[bytes], producer_id: int | None = None) -> None:
        records = [Record(n, 1_000, None, value) for n, value in enumerate(values)]
        producer = Producer()
        if producer_id is not None:
            sequence = self.sequences.setdefault(producer_id, 0)
            producer = Producer(producer_id, 0, sequence)
            self.sequences[producer_id] += len(values)
        batch = build_batch(records, producer=producer, is_transactional=producer_id is not None)
        done = await append(self.setting.logs[0], batch)
        for number, value in enumerate(values):
            self.values[done.base_offset + number] = value
            if producer_id is not None:
                self.by_producer.setdefault(producer_id, []).append(done.base_offset + number)

    async def end(self, producer_id: int, kind: ControlKind) -> None:
        batch = build_control_batch(kind, producer_id, 0, 0, 1_000)
        await append(self.setting.logs[0], batch, coordinator_epoch=0)
        offsets = self.by_producer.pop(producer_id)
        if kind is ControlKind.ABORT:
            self.aborted += offsets

    @property
    def stable(self) -> int:
        end = self.setting.logs[0].log_end_offset
        return min([end, *(offsets[0] for offsets in self.by_producer.values())])


@pytest.fixture
async def written() -> AsyncIterator[Written]:
    cluster = TestCluster()
    for _ in range(3):
        await cluster.add_bookie()
    store = MemoryMetadataStore(cluster.server)
    services = TopicServices.over(store, CLIENT, Random(9))
    await services.topics.create(new_topic("orders", KEY.topic_id, 1, [1], {}))
    setting = LogSetting(cluster)
    made = Written(setting, services)
    yield made
    await setting.aclose()
    await services.client.aclose()
    await cluster.aclose()


async def view_of(written: Written, *, is_committed: bool = True) -> TopicsView:
    view = TopicsView(written.services, ["orders"], is_committed=is_committed)
    await view.load()
    return view


async def records_of(services: TopicServices, ranges: list[TopicRange]) -> dict[int, bytes]:
    """Read the records of tasks in the simplest way."""
    found: dict[int, bytes] = {}
    for wanted in ranges:
        aborted = AbortedRecords(wanted.aborted)
        async with services.client.open_ledger(wanted.ledger_id) as reader:
            async for batch in reader.read_unconfirmed(wanted.first, wanted.last):
                for entry in batch:
                    if is_state_entry(entry.data):
                        continue
                    header = read_header(entry.data)
                    is_aborted = header.is_transactional and aborted.holds(
                        header.producer_id, header.base_offset
                    )
                    if header.is_control or is_aborted:
                        continue
                    for record in parse_records(entry.data, bytes_max=1 << 20):
                        if wanted.first_offset <= record.offset < wanted.end_offset:
                            assert record.offset not in found
                            found[record.offset] = record.value or b""
    return found


async def write_at_random(written: Written, rng: Random, steps: int) -> None:
    if not written.setting.logs:
        await written.lead()
    for step in range(steps):
        act = rng.random()
        if act < 0.03:
            await written.lead()
        elif act < 0.2 and written.by_producer:
            producer_id = rng.choice(sorted(written.by_producer))
            await written.end(producer_id, rng.choice(list(ControlKind)))
        else:
            values = [b"%d-%d" % (step, n) for n in range(rng.randint(1, 5))]
            await written.write(values, rng.choice([None, None, 1, 2, 3]))


@pytest.mark.parametrize("seed", range(4))
async def test_planned_records_are_those_of_the_log(
    written: Written, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_io.topics.partitions.WINDOW_ENTRIES", 2)
    monkeypatch.setattr("spark_io.topics.ranges.SLACK_ENTRIES", 1 + seed)
    if seed % 2:  # most aborted transactions are in older state entries
        monkeypatch.setattr("broker_layer.log.state.partition_state.ABORTED_MAX", 2)
    rng = Random(seed)
    await write_at_random(written, rng, 150)
    view = await view_of(written)
    assert len(view.partitions[ORDERS].now.segments) > 3
    bounds = view.bounds[ORDERS]
    assert bounds == Bounds(0, written.stable)
    wanted = {
        offset: value
        for offset, value in written.values.items()
        if offset < bounds.end and offset not in written.aborted
    }
    finder = RangeFinder(written.services, fail_on_data_loss=True)
    cuts = sorted([0, bounds.end, *(rng.randint(0, bounds.end) for _ in range(8))])
    for first, end in [(0, bounds.end), *pairwise(cuts)]:
        ranges = await finder.find(view.partitions[ORDERS], first, end)
        found = await records_of(written.services, ranges)
        assert found == {n: value for n, value in wanted.items() if first <= n < end}
    await view.aclose()


async def test_a_partition_is_followed_through_rolls_and_leaders(written: Written) -> None:
    await written.lead()
    view = await view_of(written)
    partition = view.partitions[ORDERS]
    finder = RangeFinder(written.services, fail_on_data_loss=True)
    found: dict[int, bytes] = {}
    at, rng = 0, Random(5)
    for step in range(60):
        await write_at_random(written, rng, 1 + step % 4)
        await partition.refresh()
        end = partition.now.bounds.end
        assert end >= at
        found |= await records_of(written.services, await finder.find(partition, at, end))
        at = end
    await partition.settle()
    assert partition.now.bounds.end == written.stable
    found |= await records_of(written.services, await finder.find(partition, at, written.stable))
    assert found == {
        offset: value
        for offset, value in written.values.items()
        if offset < written.stable and offset not in written.aborted
    }
    await view.aclose()


async def test_reads_of_uncommitted_records_cover_everything(written: Written) -> None:
    await write_at_random(written, Random(7), 60)
    view = await view_of(written, is_committed=False)
    bounds = view.bounds[ORDERS]
    assert bounds.end == written.setting.logs[0].log_end_offset
    finder = RangeFinder(written.services, fail_on_data_loss=True)
    ranges = await finder.find(view.partitions[ORDERS], 0, bounds.end)
    assert await records_of(written.services, ranges) == written.values
    await view.aclose()


async def test_reads_of_uncommitted_records_have_those_of_aborted_transactions(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest entry is a state entry, which names these transactions."""
    monkeypatch.setattr("broker_layer.log.state.partition_state.ABORTED_MAX", 2)
    await written.lead()
    for _ in range(2):
        await written.write([b"aborted"] * 5, producer_id=1)
        await written.end(1, ControlKind.ABORT)
    view = await view_of(written, is_committed=False)
    finder = RangeFinder(written.services, fail_on_data_loss=True)
    ranges = await finder.find(view.partitions[ORDERS], 0, view.bounds[ORDERS].end)
    assert await records_of(written.services, ranges) == written.values
    await view.aclose()


async def test_deleted_and_future_records_are_errors_or_left_out(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    await written.lead()
    for number in range(4):
        await written.write([b"%d" % number] * 5)
    await written.setting.logs[0].delete_records(8)
    view = await view_of(written)
    partition = view.partitions[ORDERS]
    strict = RangeFinder(written.services, fail_on_data_loss=True)
    with pytest.raises(RecordsLostError, match="partition 0, offsets 3 to 7: they are deleted"):
        await strict.find(partition, 3, 12)
    with pytest.raises(RecordsLostError, match="offsets 20 to 24: they do not exist"):
        await strict.find(partition, 9, 25)
    lenient = RangeFinder(written.services, fail_on_data_loss=False)
    ranges = await lenient.find(partition, 3, 25)
    assert sorted(await records_of(written.services, ranges)) == list(range(8, 20))
    assert await lenient.find(partition, 2, 5) == []
    assert "left out offsets 3 to 7, 5 in all" in caplog.text
    await view.aclose()


async def lead_without_telling(written: Written) -> None:
    """Take over with a client that sends its LAC only with the next entry."""
    written.epoch += 1
    services = replace(
        written.setting.services(), client=written.setting.cluster.client(lac_delay_s=600.0)
    )
    log = await TopicLog.take_over(
        services, "orders", KEY, written.epoch, CONFIG, on_failed=lambda: None
    )
    written.setting.logs.append(log)


async def test_records_that_are_not_visible_yet_are_not_lost(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a restart other bookies answered, which knew a newer LAC."""
    monkeypatch.setattr("spark_io.topics.partitions.SETTLE_S", 0.01)
    await lead_without_telling(written)
    await written.write([b"seen"] * 5)
    await written.write([b"hidden"] * 5)
    view = await view_of(written)
    partition = view.partitions[ORDERS]
    assert view.bounds == {ORDERS: Bounds(0, 5)}
    for fails in (True, False):
        finder = RangeFinder(written.services, fail_on_data_loss=fails)
        with pytest.raises(RecordsUnreadableError, match="offsets 5 to 9: they are not visible"):
            await finder.find(partition, 2, 10)
        with pytest.raises(RecordsUnreadableError, match="offsets 7 to 8"):
            await finder.find(partition, 7, 9)
    await written.write([b"later"])
    finder = RangeFinder(written.services, fail_on_data_loss=False)
    found = await records_of(written.services, await finder.find(partition, 2, 10))
    assert sorted(found) == list(range(2, 10)), "the end is read again"
    await view.aclose()


@pytest.mark.parametrize("is_led_again", [True, False])
async def test_records_after_the_certain_end_of_a_log_are_lost(
    written: Written, caplog: pytest.LogCaptureFixture, *, is_led_again: bool
) -> None:
    await written.lead()
    await written.write([b"x"] * 5)
    if is_led_again:
        await written.lead()
    view = await view_of(written)
    finder = RangeFinder(written.services, fail_on_data_loss=False)
    found = await finder.find(view.partitions[ORDERS], 2, 10)
    assert sorted(await records_of(written.services, found)) == [2, 3, 4]
    assert "left out offsets 5 to 9, 5 in all: they do not exist" in caplog.text
    await view.aclose()


async def test_records_that_are_deleted_while_the_end_is_looked_for_are_reported(
    written: Written, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written.lead()
    for _ in range(4):
        await written.write([b"x"] * 5)
    view = await view_of(written)
    partition = view.partitions[ORDERS]
    find_end = partition.find_end

    async def delete_and_find() -> bool:
        await written.setting.logs[0].delete_records(8)
        return await find_end()

    monkeypatch.setattr(partition, "find_end", delete_and_find)
    finder = RangeFinder(written.services, fail_on_data_loss=False)
    found = await records_of(written.services, await finder.find(partition, 2, 25))
    assert sorted(found) == list(range(8, 20))
    assert "left out offsets 2 to 7" in caplog.text
    assert "left out offsets 20 to 24" in caplog.text
    await view.aclose()


async def test_a_deleted_ledger_that_named_aborted_transactions_is_not_needed(
    written: Written, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it named was in it, or before it."""
    monkeypatch.setattr("broker_layer.log.state.partition_state.ABORTED_MAX", 2)
    for _ in range(3):
        await written.lead()
        for _ in range(3):
            await written.write([b"aborted"] * 5, producer_id=1)
            await written.end(1, ControlKind.ABORT)
    await written.write([b"kept"] * 5)
    view = await view_of(written)
    partition, log = view.partitions[ORDERS], written.setting.logs[0]
    last = partition.now.segments[-1]
    await log.delete_records(last.base_offset)
    await log.enforce_retention(written.setting.now_ms)
    finder = RangeFinder(written.services, fail_on_data_loss=False)
    found = await finder.find(partition, 0, log.log_end_offset)
    assert set((await records_of(written.services, found)).values()) == {b"kept"}
    assert f"left out offsets 0 to {partition.now.segments[1].base_offset - 1}" in caplog.text
    await view.aclose()


async def test_records_of_an_open_transaction_are_not_lost(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint of a query that read uncommitted records may end behind them."""
    await written.lead()
    await written.write([b"x"] * 5)
    await written.write([b"open"] * 5, producer_id=1)
    view = await view_of(written)
    partition = view.partitions[ORDERS]
    finder = RangeFinder(written.services, fail_on_data_loss=False)
    with pytest.raises(RecordsUnreadableError, match=r"offsets 5 to 9: .* a transaction is open"):
        await finder.find(partition, 0, 10)
    with pytest.raises(RecordsUnreadableError, match="offsets 5 to 9"):
        await finder.find(partition, 0, 15)
    assert "left out offsets 10 to 14" in caplog.text
    await written.end(1, ControlKind.COMMIT)
    await partition.settle()
    ranges = await finder.find(partition, 0, 11)
    assert sorted(await records_of(written.services, ranges)) == list(range(10))
    await view.aclose()


async def test_partitions_without_a_leader_and_unknown_topics(written: Written) -> None:
    view = await view_of(written)
    assert view.bounds == {ORDERS: Bounds(0, 0)}
    await view.aclose()
    with pytest.raises(UnknownTopicError, match="'none' does not exist"):
        await TopicsView(written.services, ["none"], is_committed=True).load()
    topics = written.services.topics
    await topics.change("orders", lambda record: record.with_deletion())
    with pytest.raises(UnknownTopicError, match="'orders' was deleted"):
        await view_of(written)


async def test_each_range_has_the_identity_of_its_ledger(written: Written) -> None:
    await write_at_random(written, Random(3), 60)
    view = await view_of(written, is_committed=False)
    assert view.identities == {"orders": KEY.topic_id.hex()}
    finder = RangeFinder(written.services, fail_on_data_loss=True)
    ranges = await finder.find(view.partitions[ORDERS], 0, view.bounds[ORDERS].end)
    assert len(ranges) > 1
    for range_ in ranges:
        info = await written.services.client.ledger_info(range_.ledger_id)
        assert range_.creation_token == info.creation_token
    await view.aclose()


async def test_a_topic_created_again_is_not_the_one_of_the_query(written: Written) -> None:
    view = await view_of(written)
    topics = written.services.topics
    await topics.change("orders", lambda record: record.with_deletion())
    await topics.change("orders", lambda record: record.as_tombstone())
    await topics.create(new_topic("orders", TopicId(bytes(16)), 1, [1], {}))
    with pytest.raises(RecreatedError, match="topic 'orders' was deleted and created again"):
        await view.load()
    again = await view_of(written)
    assert again.identities == {"orders": bytes(16).hex()} != view.identities
    await again.aclose()
    await view.aclose()


@dataclass
class OnThisLoop:
    """The driver's access, over the services of a test, for calls from another thread."""

    services: TopicServices
    loop: asyncio.AbstractEventLoop

    def call(self, _what: str, work: Callable[..., Coroutine[Any, Any, Any]], _: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work(self.services), self.loop).result()


@pytest.mark.real_time
async def test_the_micro_batches_of_a_stream_have_each_record_once(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = pytest.importorskip("spark_io.topics.readers", reason="needs the extra `spark`")
    await written.lead()
    for number in range(6):
        await written.write([b"%d" % number] * 5)
    access = OnThisLoop(written.services, asyncio.get_running_loop())
    monkeypatch.setattr(readers, "access_of", lambda _: access)
    options = TopicReadOptions.of({"metadata": "zk://127.0.0.1:1/none", "topic": "orders"})
    batches: list[list[TopicRange]] = []

    def follow() -> Offset:
        source: FollowedSource = readers.FollowedTopics(options)
        at, end = source.start("earliest"), source.latest()
        other: Offset = at | {IDS_KEY: {"orders": "0b"}}
        with pytest.raises(RecreatedError):
            source.advance(other, end, MicroBatchLimits())
        while at != end:
            to = source.advance(at, end, MicroBatchLimits(entries=7))
            batches.append([cast("TopicRange", range_) for range_ in source.ranges(at, to)])
            at = to
        source.close()
        return end

    end = await asyncio.to_thread(follow)
    assert end == {"orders": {"0": 30}, IDS_KEY: {"orders": KEY.topic_id.hex()}}
    found: dict[int, bytes] = {}
    for ranges in batches:
        new = await records_of(written.services, ranges)
        assert len(new) <= 7
        assert not found.keys() & new.keys()
        found |= new
    assert found == written.values

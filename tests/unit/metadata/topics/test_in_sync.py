"""Reports of in-sync replicas: stored form, writing, and the view of all reports."""

import asyncio
import random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.paths import in_sync_path
from metadata.store.memory import MemoryMetadataStore
from metadata.topics import in_sync
from metadata.topics.in_sync import REPORT_BYTES_MAX, pack_reports, unpack_reports
from metadata.topics.in_sync_reports import InSyncReport, InSyncReporter, InSyncView
from metadata.topics.partition import PartitionKey
from metadata.topics.topic import LEADER_EPOCH_MAX, PARTITIONS_MAX, TopicId
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until

TOPIC_ID = TopicId(b"t" * 16)
KEY = PartitionKey(TOPIC_ID, 0)
BOTH = (1_000_001, 1_000_002)

keys = st.builds(
    PartitionKey,
    st.sampled_from([TOPIC_ID, TopicId(b"o" * 16)]),
    st.integers(0, PARTITIONS_MAX - 1),
)
numbers = st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple)
reports = st.builds(InSyncReport, st.integers(0, LEADER_EPOCH_MAX), numbers, numbers)


@given(st.dictionaries(keys, reports, max_size=6))
def test_reports_round_trip(each: dict[PartitionKey, InSyncReport]) -> None:
    value, left_out = pack_reports("/a", each)
    assert (unpack_reports("/a", value), left_out) == (each, 0)


@given(st.binary(max_size=60))
def test_other_bytes_are_a_format_error(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        unpack_reports("/a", value)


def test_a_missing_list_is_a_format_error() -> None:
    value, _ = pack_reports("/a", {KEY: InSyncReport(3, BOTH, BOTH)})
    with pytest.raises(MetadataFormatError):
        unpack_reports("/a", value[:-1] + b"\x01")


@pytest.mark.parametrize(("topic_count", "replica_lists"), [(3, 10), (20_000, 10), (3, 20_000)])
def test_a_report_is_never_too_large(topic_count: int, replica_lists: int) -> None:
    many = {}
    for index in range(30_000):
        topic_id = TopicId((index % topic_count).to_bytes(16, "big"))
        first = 2**30 + index % replica_lists
        replicas = (first, first + 1, first + 2)
        report = InSyncReport(LEADER_EPOCH_MAX, replicas, replicas[:2])
        many[PartitionKey(topic_id, index // topic_count)] = report
    value, left_out = pack_reports("/a", many)
    assert len(value) <= REPORT_BYTES_MAX
    assert len(unpack_reports("/a", value)) + left_out == len(many)
    assert left_out < 27_000


@pytest.mark.parametrize(
    ("topic_count", "list_count"), [(1, 1), (1, 40), (40, 1), (40, 40)], ids=str
)
@pytest.mark.parametrize("bytes_max", [400, 1_000, 1_500])
def test_the_first_partitions_fill_a_report_almost(
    monkeypatch: pytest.MonkeyPatch, topic_count: int, list_count: int, bytes_max: int
) -> None:
    """With numbers of the largest size the estimated size is close."""
    monkeypatch.setattr(in_sync, "REPORT_BYTES_MAX", bytes_max)
    first = 2**31 - 200
    many = {
        PartitionKey(TopicId(bytes([i % topic_count]) * 16), 9_000 + i): InSyncReport(
            LEADER_EPOCH_MAX, (first + i % list_count, first), (first + i % list_count,)
        )
        for i in range(120)
    }
    value, left_out = pack_reports("/a", many)
    kept = sorted(many)[: len(many) - left_out]
    assert unpack_reports("/a", value) == {key: many[key] for key in kept}
    assert left_out
    assert 0.75 * bytes_max - 60 < len(value) <= bytes_max


def test_what_is_behind_the_first_partition_that_does_not_fit_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_sync, "REPORT_BYTES_MAX", 150)
    large = InSyncReport(3, tuple(range(100)), BOTH)
    many = {KEY: InSyncReport(3, BOTH, BOTH), PartitionKey(TOPIC_ID, 1): large}
    many[PartitionKey(TOPIC_ID, 2)] = many[KEY]
    value, left_out = pack_reports("/a", many)
    assert (list(unpack_reports("/a", value)), left_out) == ([KEY], 2)


def test_a_report_has_at_most_so_many_topics_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_sync, "ITEMS_MAX", 4)
    topics = {
        PartitionKey(TopicId(bytes([i]) * 16), 0): InSyncReport(3, BOTH, BOTH) for i in range(5)
    }
    lists = {PartitionKey(TOPIC_ID, i): InSyncReport(3, (i,), (i,)) for i in range(5)}
    for many in (topics, lists):
        assert pack_reports("/a", many)[1] == 1
        four = dict(sorted(many.items())[:4])
        assert pack_reports("/a", four)[1] == 0
    lists[PartitionKey(TOPIC_ID, 5)] = lists[PartitionKey(TOPIC_ID, 0)]
    value, left_out = pack_reports("/a", lists)
    assert (len(unpack_reports("/a", value)), left_out) == (4, 2), "only the first ones are kept"


@pytest.mark.parametrize(
    "topics",
    [
        [[b"t" * 16, [[0, 3, 0, 1]]]],
        [[b"t" * 16, [[0, 3, 1, 0]]]],
        [[b"t" * 16, [[0, 3, -1, 0]]]],
        [[b"t" * 16, [[PARTITIONS_MAX, 3, 0, 0]]]],
        [[b"t" * 16, [[-1, 3, 0, 0]]]],
        [[b"t" * 16, [[0, -1, 0, 0]]]],
        [[b"t" * 16, [[0, 3, 0, 0, 0]]]],
        [[b"t" * 16, [[0, 3, 0]]]],
        [[b"t" * 16, [], 0]],
        [[b"t" * 15, [[0, 3, 0, 0]]]],
    ],
)
def test_a_field_out_of_range_is_a_format_error(topics: object) -> None:
    good = [1, [[5, 6]], [[b"t" * 16, [[0, 3, 0, 0]]]]]
    assert unpack_reports("/a", msgpack.packb(good)) == {KEY: InSyncReport(3, (5, 6), (5, 6))}
    with pytest.raises(MetadataFormatError, match="/a"):
        unpack_reports("/a", msgpack.packb([1, [[5, 6]], topics]))


def test_ten_thousand_partitions_fit() -> None:
    topics = [TopicId(i.to_bytes(16, "big")) for i in range(1_000)]
    lists = [(2**30 + i, 2**30 + i + 1, 2**30 + i + 2) for i in range(100)]
    many = {
        PartitionKey(topic_id, i): InSyncReport(9, lists[i], lists[i][:2])
        for topic_id in topics
        for i in range(10)
    }
    assert pack_reports("/a", many)[1] == 0


async def test_the_newest_leaders_report_counts(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first, second = InSyncReporter(store, 1, rng), InSyncReporter(other_store, 2, rng)
    first.start()
    second.start()
    view = InSyncView(store, rng)
    reported: list[None] = []
    cancel = view.on_change(lambda: reported.append(None))
    await view.start()
    assert view.find(KEY) is None
    first.report(KEY, InSyncReport(4, BOTH, BOTH))
    await until(lambda: view.find(KEY) == InSyncReport(4, BOTH, BOTH))
    second.report(KEY, InSyncReport(5, BOTH, BOTH[:1]))
    await until(lambda: view.find(KEY) == InSyncReport(5, BOTH, BOTH[:1]))
    first.report(KEY, InSyncReport(4, BOTH, ()))
    second.withdraw(KEY)
    await until(lambda: view.find(KEY) == InSyncReport(4, BOTH, ()))
    first.withdraw(KEY)
    await until(lambda: view.find(KEY) is None)
    assert len(reported) == 5
    cancel()
    first.report(KEY, InSyncReport(4, BOTH, BOTH))
    await until(lambda: view.find(KEY) is not None)
    assert len(reported) == 5
    for each in (first, second, view):
        await each.aclose()


async def test_many_reports_cost_few_writes(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    faults.writes.clear()
    for index in range(1_000):
        reporter.report(PartitionKey(TOPIC_ID, index), InSyncReport(1, BOTH, BOTH))
        await asyncio.sleep(0.001)
    await asyncio.sleep(2)
    assert len(faults.writes) <= 6
    stored = unpack_reports("/a", (await store.get(in_sync_path(1))).value)
    assert len(stored) == 1_000
    faults.writes.clear()
    reporter.report(KEY, InSyncReport(1, BOTH, BOTH))
    reporter.withdraw(PartitionKey(TOPIC_ID, 9_999))
    await asyncio.sleep(2)
    assert faults.writes == []
    await reporter.aclose()


@pytest.mark.parametrize("act", ["lost", "dropped", "late", "refused"])
async def test_a_report_is_finally_written(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    earlier = InSyncReporter(store, 1, rng)
    earlier.start()
    earlier.report(KEY, InSyncReport(1, BOTH, ()))
    view = InSyncView(store, rng)
    await view.start()
    await until(lambda: view.find(KEY) is not None)
    await earlier.aclose()
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    faults.acts = [act]
    reporter.report(KEY, InSyncReport(2, BOTH, BOTH))
    await until(lambda: view.find(KEY) == InSyncReport(2, BOTH, BOTH))
    await asyncio.sleep(2)
    reporter.report(KEY, InSyncReport(2, BOTH, BOTH[:1]))
    await until(lambda: view.find(KEY) == InSyncReport(2, BOTH, BOTH[:1]))
    await reporter.aclose()
    await view.aclose()

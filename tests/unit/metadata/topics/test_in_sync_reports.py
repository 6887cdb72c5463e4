"""Reports of in-sync replicas: when they are written, and which of them a view shows."""

import asyncio
import random
from itertools import pairwise

import pytest

from metadata.ids import Version
from metadata.paths import IN_SYNC, in_sync_path
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.topics import in_sync
from metadata.topics.in_sync import pack_reports, unpack_reports
from metadata.topics.in_sync_reports import INTERVAL_S, InSyncReport, InSyncReporter, InSyncView
from metadata.topics.partition import PartitionKey
from metadata.topics.topic import TopicId
from tests.support.metadata.scripted_faults import ScriptedFaults, is_write

KEY = PartitionKey(TopicId(b"t" * 16), 0)
OTHER_KEY = PartitionKey(TopicId(b"t" * 16), 1)
BOTH = (1_000_001, 1_000_002)
OLD, NEW = InSyncReport(1, BOTH, BOTH), InSyncReport(2, BOTH, BOTH[:1])
FIRST_PAUSE_S_MAX = 0.05


async def stored_in(store: MemoryMetadataStore) -> dict[PartitionKey, InSyncReport]:
    return dict(unpack_reports("/a", (await store.get(in_sync_path(1), fresh=True)).value))


async def test_the_first_report_is_written_once(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    await store.create(IN_SYNC, b"")
    faults.writes.clear()
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    reporter.report(KEY, OLD)
    await asyncio.sleep(10.0)
    assert faults.writes == ["create"]
    assert await stored_in(store) == {KEY: OLD}
    await reporter.aclose()


async def test_a_new_process_replaces_the_reports_of_an_earlier_one(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
) -> None:
    path = in_sync_path(1)
    await other_store.create(path, pack_reports(path, {OTHER_KEY: OLD})[0])
    await other_store.compare_and_set(path, pack_reports(path, {OTHER_KEY: NEW})[0], Version(0))
    faults.missed = 1
    faults.writes.clear()
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    reporter.report(KEY, OLD)
    await asyncio.sleep(10.0)
    assert faults.writes == ["compare_and_set"]
    assert await stored_in(store) == {KEY: OLD}
    await reporter.aclose()


async def test_a_write_that_fails_is_repeated_after_a_pause(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    await store.create(IN_SYNC, b"")
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    faults.meets = is_write
    faults.times.clear()
    faults.refusals = 7
    reporter.report(KEY, OLD)
    await asyncio.sleep(10.0)
    times = faults.times
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert len(gaps) == 7
    assert gaps[0] < FIRST_PAUSE_S_MAX
    assert gaps[-1] > 10 * gaps[0]
    faults.refusals = 1
    reporter.report(KEY, NEW)
    await asyncio.sleep(10.0)
    failed, repeated = times[-2:]
    assert repeated - failed < FIRST_PAUSE_S_MAX, "pauses begin again after a success"
    assert await stored_in(store) == {KEY: NEW}
    await reporter.aclose()


async def test_reports_are_written_once_in_an_interval(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    reporter.report(KEY, OLD)
    await asyncio.sleep(0.1)
    faults.calls.clear()
    reporter.report(KEY, NEW)
    reporter.report(OTHER_KEY, NEW)
    await asyncio.sleep(0.9 * (INTERVAL_S - 0.1))
    assert not any(call.is_write for call in faults.calls)
    await asyncio.sleep(INTERVAL_S)
    assert [call.is_write for call in faults.calls] == [True]
    assert await stored_in(store) == {KEY: NEW, OTHER_KEY: NEW}
    await reporter.aclose()


async def test_the_last_reports_stay_after_the_end(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    reporter.report(KEY, OLD)
    await asyncio.sleep(1.0)
    await reporter.aclose()
    reporter.report(KEY, NEW)
    await asyncio.sleep(10.0)
    assert await stored_in(store) == {KEY: OLD}


async def test_a_reporter_ends_with_its_store(
    server: MemoryMetadataServer, rng: random.Random
) -> None:
    store = MemoryMetadataStore(server)
    running = len(asyncio.all_tasks())
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    await store.aclose()
    reporter.report(KEY, OLD)
    await asyncio.sleep(10.0)
    assert len(asyncio.all_tasks()) == running
    await reporter.aclose()


@pytest.mark.parametrize("bytes_max", [80, in_sync.REPORT_BYTES_MAX])
async def test_reports_that_do_not_fit_are_logged(
    store: MemoryMetadataStore,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    bytes_max: int,
) -> None:
    monkeypatch.setattr(in_sync, "REPORT_BYTES_MAX", bytes_max)
    reporter = InSyncReporter(store, 1, rng)
    reporter.start()
    reporter.report(KEY, OLD)
    reporter.report(PartitionKey(TopicId(b"u" * 16), 0), InSyncReport(1, tuple(range(50)), BOTH))
    await asyncio.sleep(1.0)
    assert KEY in await stored_in(store)
    assert ("do not fit" in caplog.text) == (bytes_max == 80)
    assert ("the replicas of 1 partitions" in caplog.text) == (bytes_max == 80)
    await reporter.aclose()


async def put(store: MemoryMetadataStore, broker_id: int, report: InSyncReport) -> None:
    path = in_sync_path(broker_id)
    await store.create(path, pack_reports(path, {KEY: report})[0])


@pytest.mark.parametrize("epochs", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
async def test_a_view_shows_the_report_of_the_newest_leader(
    store: MemoryMetadataStore, rng: random.Random, epochs: tuple[int, ...]
) -> None:
    for broker_id, epoch in enumerate(epochs):
        await put(store, broker_id, InSyncReport(epoch, BOTH, BOTH))
    view = InSyncView(store, rng)
    await view.start()
    assert view.find(KEY) == InSyncReport(3, BOTH, BOTH)
    assert view.find(OTHER_KEY) is None
    await view.aclose()


async def test_a_view_reports_differences_only(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    path = in_sync_path(1)
    await put(store, 1, OLD)
    view = InSyncView(other_store, rng)
    found: list[InSyncReport | None] = []
    view.on_change(lambda: found.append(view.find(KEY)))
    await view.start()
    await store.compare_and_set(path, (await store.get(path)).value, Version(0))
    await store.create(in_sync_path(2), b"of no broker")
    await asyncio.sleep(1.0)
    await store.delete(in_sync_path(2), Version(0))
    await asyncio.sleep(1.0)
    assert found == [OLD]
    await store.delete(path, Version(1))
    await asyncio.sleep(1.0)
    assert found == [OLD, None]
    await view.aclose()


async def test_a_closed_view_keeps_what_it_knew(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    await put(store, 1, OLD)
    view = InSyncView(other_store, rng)
    await view.start()
    await view.aclose()
    await store.delete(in_sync_path(1), Version(0))
    await asyncio.sleep(1.0)
    assert view.find(KEY) == OLD

"""The writer's handle: admission, cancelling, deadlines, silence and ends (protocol 4.1-4.7,
5.4-5.7, 6.2, 8.4).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookie.wire.messages import ReportLac, Status
from ledger_client import (
    BackpressureError,
    BookieSuspected,
    EntryNotFoundError,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
    Quorum,
    QuorumTimeoutError,
)
from ledger_client.writing.writer import LedgerWriter
from metadata.ids import EntryId
from tests.support.ledger_client.cluster import THREE, TestCluster, entries_of
from tests.until import until

ALL_THREE = Quorum.all(3)


async def opened(cluster: TestCluster, quorum: Quorum = THREE, **config: float) -> LedgerWriter:
    return await cluster.client(**config).create_ledger(quorum)


def members(cluster: TestCluster, writer: LedgerWriter) -> list[str]:
    return [str(b) for b in writer.info.fragments[-1].ensemble]


# -- admission -------------------------------------------------------------------------------------


async def test_appends_of_one_tick_are_one_batch_in_call_order(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    ids = await asyncio.gather(*[writer.append(b"%d" % i) for i in range(100)])
    assert ids == list(range(100))
    bookie = cluster.bookie(members(cluster, writer)[0])
    assert [(batch.header.first_entry_id, batch.header.count) for _, batch in bookie.adds] == [
        (0, 100)
    ]
    await writer.aclose()


async def test_append_many_takes_any_iterable_and_keeps_its_ids_together(
    cluster: TestCluster,
) -> None:
    writer = await opened(cluster, window_entries_max=50)

    async def slowly() -> AsyncIterator[bytes]:
        for i in range(120):
            await asyncio.sleep(0)
            yield b"a%d" % i

    many = asyncio.create_task(writer.append_many(slowly()))
    await asyncio.sleep(0.01)
    single = asyncio.create_task(writer.append(b"single"))
    generated = await writer.append_many(b"g%d" % i for i in range(3000))
    ids = await many
    assert len(ids) == 120
    assert len(generated) == 3000
    everything = {*ids, *generated, await single}
    assert everything == set(range(3121))
    assert await writer.append_many([]) == range(-1, -1)
    await writer.aclose()
    found = await entries_of(cluster.clients[0], writer.id, 3120)
    assert found[ids.start : ids.stop] == [b"a%d" % i for i in range(120)]
    assert found[generated.start : generated.stop] == [b"g%d" % i for i in range(3000)]


async def test_entries_of_a_slow_source_do_not_wait_for_each_other(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    resume = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"first"
        await resume.wait()
        yield b"second"

    many = asyncio.create_task(writer.append_many(slowly()))
    await until(lambda: writer.last_confirmed == 0)
    resume.set()
    assert await many == range(2)
    await writer.aclose()


async def test_a_full_window_pushes_back(cluster: TestCluster) -> None:
    writer = await opened(cluster, window_entries_max=2)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    handles = [writer.append_nowait(b"x"), writer.append_nowait(b"y")]
    with pytest.raises(BackpressureError) as caught:
        writer.append_nowait(b"z")
    assert caught.value.retriable
    assert caught.value.outcome == "not_written"
    with pytest.raises(QuorumTimeoutError) as late:
        await writer.append(b"z", timeout=0.05)
    assert (late.value.outcome, late.value.entry_id) == ("not_written", None)
    assert writer.last_pushed == 1
    await writer.abort()
    assert all(isinstance(handle.exception(), LedgerClosedError) for handle in handles)


async def test_a_cancelled_append_keeps_its_id_and_leaves_no_gap(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    first = asyncio.create_task(writer.append(b"first"))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(QuorumTimeoutError) as late:
        await writer.append(b"second", timeout=0.05)
    assert (late.value.outcome, late.value.entry_id) == ("unknown", 1)
    assert writer.last_pushed == 1
    await writer.abort()


async def test_mutable_entries_are_copied_at_the_call(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    mutable = bytearray(b"before")
    handle = writer.append_nowait(mutable)
    mutable[:] = b"after!"
    await handle
    await writer.aclose()
    assert await entries_of(cluster.clients[0], writer.id, 0) == [b"before"]


async def test_a_bad_entry_in_a_range_stops_it_and_reports_its_progress(
    cluster: TestCluster,
) -> None:
    writer = await opened(cluster, entry_bytes_max=10)
    entries = [b"x"] * 1024 + [b"too long for the limit"]
    with pytest.raises(EntryTooLargeError) as caught:
        await writer.append_many(entries)
    assert (caught.value.first_entry_id, caught.value.admitted_count) == (0, 1024)
    assert await writer.append(b"goes on") == 1024
    await writer.aclose()


# -- failures --------------------------------------------------------------------------------------


async def test_a_failed_range_reports_admitted_and_confirmed_entries(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    await writer.append_many([b"x"] * 10)
    async with cluster.client() as other:
        await other.recover_ledger(writer.id)
        with pytest.raises(LedgerFencedError) as caught:
            await writer.append_many([b"y"] * 5)
    error = caught.value
    assert (error.first_entry_id, error.admitted_count, error.confirmed_count) == (10, 5, 0)
    assert error.outcome == "unknown"
    with pytest.raises(LedgerFencedError) as again:
        writer.append_nowait(b"z")
    assert again.value.outcome == "not_written"
    with pytest.raises(LedgerFencedError):
        await writer.aclose()


async def test_closing_a_ledger_that_was_closed_elsewhere_at_the_same_end_succeeds(
    cluster: TestCluster,
) -> None:
    writer = await opened(cluster)
    await writer.append_many([b"x"] * 10)
    async with cluster.client() as other:
        info = await other.recover_ledger(writer.id)
    await writer.aclose()
    assert info.last_entry_id == writer.last_confirmed == 9


async def test_without_a_spare_the_writer_fails_and_names_what_is_missing(
    cluster: TestCluster,
) -> None:
    writer = await opened(cluster, run_degraded=False)
    await writer.append(b"confirmed")
    spare = next(b for b in cluster.bookies if b.id not in members(cluster, writer))
    await spare.unregister()
    lost = cluster.bookie(members(cluster, writer)[0])
    await asyncio.sleep(0.1)
    await lost.stop()
    with pytest.raises(NotEnoughBookiesError) as caught:
        for _ in range(100):
            await writer.append(b"more")
    assert caught.value.needed == 1
    assert str(lost.id) in str(caught.value)
    with pytest.raises(NotEnoughBookiesError):
        await writer.aclose()
    info = await cluster.clients[0].ledger_info(writer.id)
    assert (info.state, info.last_entry_id) == ("closed", writer.last_confirmed)


async def test_run_degraded_continues_and_repairs_what_it_can(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    await writer.append(b"confirmed")
    spare = next(b for b in cluster.bookies if b.id not in members(cluster, writer))
    await spare.unregister()
    await asyncio.sleep(0.1)
    lost = cluster.bookie(members(cluster, writer)[0])
    await lost.stop()
    for _ in range(3):
        await writer.append(b"degraded")
    with pytest.raises(QuorumTimeoutError, match="ledger verify"):
        await writer.wait_fully_replicated(3)
    assert writer.under_replicated
    joined = await cluster.add_bookie()
    await until(lambda: str(joined.id) in members(cluster, writer))
    assert await writer.append(b"whole again") == 4
    await writer.wait_fully_replicated(4)
    await writer.aclose()


async def test_a_read_only_bookie_is_replaced(cluster: TestCluster) -> None:
    writer = await opened(cluster, ALL_THREE)
    full = cluster.bookie(members(cluster, writer)[0])
    full.refuse_adds = Status.READ_ONLY
    assert await writer.append(b"x") == 0
    assert str(full.id) not in members(cluster, writer)
    await writer.aclose()


async def test_a_silent_bookie_is_suspected_long_before_its_timeout(cluster: TestCluster) -> None:
    writer = await opened(cluster, ALL_THREE, add_timeout_s=30.0)
    await writer.append(b"warm")
    silent = cluster.bookie(members(cluster, writer)[0])
    silent.is_silent = True
    assert await writer.append(b"x", timeout=5.0) == 1
    assert str(silent.id) not in members(cluster, writer)
    assert any(isinstance(event, BookieSuspected) for event in cluster.events)
    await writer.aclose()


@pytest.mark.parametrize("quorum", [ALL_THREE, THREE], ids=["AQ = WQ", "AQ < WQ"])
async def test_a_bookie_that_is_late_all_the_time_is_replaced_where_each_append_needs_it(
    cluster: TestCluster, quorum: Quorum
) -> None:
    """It answers every 60 ms, so it is never silent."""
    writer = await opened(cluster, quorum, add_timeout_s=30.0)
    await writer.append(b"warm")
    late = cluster.bookie(members(cluster, writer)[0])
    appends: list[asyncio.Task[int]] = []
    for number in range(200):
        late.late_s = min(1.0, number / 100)
        appends.append(asyncio.create_task(writer.append(b"x")))
        await asyncio.sleep(0.05)
    await asyncio.gather(*appends)
    assert (str(late.id) in members(cluster, writer)) == (quorum is THREE)
    await writer.aclose()


async def test_delayed_changes_wait_for_the_quorum_to_need_them(cluster: TestCluster) -> None:
    await cluster.add_bookie()
    writer = await opened(cluster, delay_ensemble_change=True)
    await writer.append(b"x")
    before = members(cluster, writer)
    await cluster.bookie(before[0]).stop()
    await writer.append(b"y")
    assert members(cluster, writer) == before
    await cluster.bookie(before[1]).stop()
    await writer.append(b"z")
    assert not {*before[:2]} & {*members(cluster, writer)}
    await writer.aclose()


@pytest.mark.parametrize("quorum", [THREE, ALL_THREE, Quorum.in_sync(3, 2)])
async def test_a_bookie_that_returns_is_used_while_the_metadata_service_is_away(
    cluster: TestCluster, quorum: Quorum
) -> None:
    writer = await opened(cluster, quorum)
    await writer.append(b"x")
    before = members(cluster, writer)
    bookie = cluster.bookie(before[0])
    cluster.stores[-1].suspend()
    bookie.is_refusing = True
    bookie.drop_connections()
    append = asyncio.create_task(writer.append(b"y"))
    await asyncio.sleep(1.0)
    assert not append.done(), "the change waits for the metadata service"
    bookie.is_refusing = False
    assert await append == 1
    assert await writer.append(b"z") == 2
    cluster.stores[-1].resume()
    await writer.wait_fully_replicated(2)
    assert members(cluster, writer) == before
    assert len(writer.info.fragments) == 1
    await writer.aclose()


# -- after confirmation ----------------------------------------------------------------------------


async def test_an_idle_writer_sends_its_lac(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    await writer.append_many([b"x"] * 3)
    bookie = cluster.bookie(members(cluster, writer)[0])
    await until(lambda: any(r == ReportLac(writer.ledger_id, EntryId(2)) for r in bookie.requests))
    await asyncio.sleep(0.2)
    assert sum(isinstance(r, ReportLac) for r in bookie.requests) == 1
    await writer.aclose()


async def test_full_replication_of_an_entry_that_was_never_appended(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    await writer.append(b"x")
    await writer.wait_fully_replicated(0)
    with pytest.raises(EntryNotFoundError, match="the last one is 0"):
        await writer.wait_fully_replicated(1)
    await writer.aclose()


async def test_a_close_waits_for_pending_appends(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    handles = [writer.append_nowait(b"x") for _ in range(10)]
    await writer.aclose()
    assert [handle.result() for handle in handles] == list(range(10))
    with pytest.raises(LedgerClosedError):
        await writer.append(b"y")
    await writer.aclose()


# -- slow sources, and ends while a caller waits ---------------------------------------------------


async def test_a_source_may_end_long_after_its_last_entry_is_confirmed(
    cluster: TestCluster,
) -> None:
    writer = await opened(cluster)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"only"
        await until(lambda: writer.last_confirmed == 0)

    async with asyncio.timeout(5):
        assert await writer.append_many(slowly()) == range(1)
    await writer.aclose()


async def test_a_writer_that_ends_while_a_source_pauses_fails_all_callers(
    cluster: TestCluster,
) -> None:
    """This fails the range, and the caller in line behind it, of which nothing was sent."""
    writer = await opened(cluster)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    resume = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"only"
        await resume.wait()

    many = asyncio.create_task(writer.append_many(slowly()))
    await until(lambda: writer.last_pushed == 0)
    single = asyncio.create_task(writer.append(b"in line"))
    await asyncio.sleep(0)
    await writer.abort()
    async with asyncio.timeout(5):
        with pytest.raises(LedgerClosedError) as in_line:
            await single
        resume.set()
        with pytest.raises(LedgerClosedError) as admitted:
            await many
    assert in_line.value.outcome == "not_written"
    assert (admitted.value.outcome, admitted.value.admitted_count) == ("unknown", 1)


async def test_a_caller_that_waits_for_room_when_the_writer_ends_has_sent_nothing(
    cluster: TestCluster,
) -> None:
    writer = await opened(cluster, window_entries_max=1)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    writer.append_nowait(b"fills the window")
    single = asyncio.create_task(writer.append(b"x"))
    many = asyncio.create_task(writer.append_many([b"y"]))
    await asyncio.sleep(0.01)
    await writer.abort()
    for waiting in (single, many):
        with pytest.raises(LedgerClosedError) as caught:
            await waiting
        assert caught.value.outcome == "not_written"


async def test_an_abort_ends_the_wait_of_a_close(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    handle = writer.append_nowait(b"x")
    closing = asyncio.create_task(writer.aclose())
    await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        await writer.abort()
        await closing
    assert isinstance(handle.exception(), LedgerClosedError)
    assert (writer.info.state, writer.info.last_entry_id) == ("closed", -1)


async def test_a_close_waits_no_longer_than_its_timeout(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    handle = writer.append_nowait(b"x")
    async with asyncio.timeout(5):
        with pytest.raises(QuorumTimeoutError):
            await writer.aclose(timeout=0.05)
    assert isinstance(handle.exception(), QuorumTimeoutError)
    assert (writer.info.state, writer.info.last_entry_id) == ("closed", -1)


async def test_no_caller_waits_for_copies_after_the_close(cluster: TestCluster) -> None:
    writer = await opened(cluster)
    cluster.bookie(members(cluster, writer)[2]).is_silent = True
    await writer.append(b"x")
    await writer.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(QuorumTimeoutError, match="not on their complete write quorum"):
            await writer.wait_fully_replicated(0)

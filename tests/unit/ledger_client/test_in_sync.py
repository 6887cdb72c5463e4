"""In-sync mode end to end: members leave, catch up and come back (protocol section 11)."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from ledger_client import (
    LedgerError,
    LedgerFencedError,
    LedgerNotFoundError,
    LedgerWriter,
    NotEnoughInSyncReplicasError,
    Quorum,
    RecoveryUndecidedError,
)
from ledger_client.observability import MemberCaughtUp
from metadata.ids import BookieId, UpdateToken
from metadata.ledgers.ledger_store import LedgerStore
from tests.support.ledger_client.cluster import TestCluster, entries_of
from tests.support.ledger_client.storing_bookie import StoringBookie
from tests.until import until, within

THREE_MIN_TWO = Quorum.in_sync(3, 2)


def members(writer: LedgerWriter) -> tuple[str, ...]:
    return tuple(writer.info.fragments[-1].ensemble)


async def lose(cluster: TestCluster, bookie_id: str) -> StoringBookie:
    bookie = cluster.bookie(bookie_id)
    await bookie.unregister()
    await bookie.stop()
    return bookie


async def test_a_failed_member_leaves_and_appends_continue(cluster: TestCluster) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(THREE_MIN_TWO)
    await writer.append(b"on three")
    lost = members(writer)[1]
    await lose(cluster, lost)
    assert await writer.append(b"on two") == 1
    assert lost not in members(writer)
    assert set(writer.in_sync) == set(members(writer))
    assert len(members(writer)) == 2
    info = await cluster.client().ledger_info(writer.id)
    assert [len(fragment.ensemble) for fragment in info.fragments] == [3, 2]
    await writer.aclose()
    assert await entries_of(cluster.client(), writer.id, 1) == [b"on three", b"on two"]


async def test_below_the_least_in_sync_appends_are_refused_and_nothing_shrinks(
    cluster: TestCluster,
) -> None:
    client = cluster.client(spare_after_s=1000.0)
    writer = await client.create_ledger(THREE_MIN_TWO)
    await writer.append(b"on three")
    first, second, third = members(writer)
    await lose(cluster, first)
    await writer.append(b"on two")
    await lose(cluster, second)
    pending = asyncio.ensure_future(writer.append(b"waits"))
    await until(lambda: writer.in_sync == (third,))
    with pytest.raises(
        NotEnoughInSyncReplicasError,
        match=r"2 members must be in sync and 1 of bookie-., bookie-. are",
    ):
        await writer.append(b"refused")
    assert set(members(writer)) == {second, third}
    assert not pending.done()
    await cluster.bookie(second).start()
    await cluster.bookie(second).register(cluster.stores[0], writable=True)
    assert await within(pending) == 2
    assert await writer.append(b"accepted") == 3
    await writer.aclose()


async def test_a_spare_replaces_an_absent_member_and_catches_up(
    cluster: TestCluster,
) -> None:
    client = cluster.client(spare_after_s=0.1)
    writer = await client.create_ledger(THREE_MIN_TWO)
    await writer.append_many([b"%d" % n for n in range(100)])
    spare = next(b.id for b in cluster.bookies if b.id not in members(writer))
    lost = members(writer)[0]
    await lose(cluster, lost)
    await writer.append(b"notices")
    await until(lambda: spare in writer.in_sync)
    assert any(isinstance(event, MemberCaughtUp) for event in cluster.events)
    info = await cluster.client().ledger_info(writer.id)
    assert all(spare in fragment.ensemble for fragment in info.fragments)
    assert lost not in [b for fragment in info.fragments for b in fragment.ensemble]
    assert not any(fragment.incoming for fragment in info.fragments)
    for other in members(writer):
        if other != spare:
            await lose(cluster, other)
    await writer.abort()
    assert await entries_of(cluster.client(), writer.id, 100) == [
        *(b"%d" % n for n in range(100)),
        b"notices",
    ]


async def test_a_mark_left_by_a_failed_copy_is_removed(cluster: TestCluster) -> None:
    """Its bookie is no longer a member, so no copy continues under the mark (rule 11.2)."""
    client = cluster.client(spare_after_s=0.1)
    writer = await client.create_ledger(THREE_MIN_TWO)
    await writer.append(b"on three")
    first = members(writer)[0]
    await lose(cluster, first)
    await writer.append(b"on two")
    ledgers = LedgerStore(cluster.stores[0], Random(1), lambda: 0)
    stored, version = await ledgers.get(writer.id, fresh=True)
    marked = replace(stored.fragments[0], incoming=(BookieId("bookie-gone"),))
    stored = stored.with_fragment(0, marked, UpdateToken(bytes(16)))
    await ledgers.compare_and_set(stored, version)

    await until(lambda: len(writer.in_sync) == 3)

    while any(fragment.incoming for fragment in stored.fragments):
        await asyncio.sleep(0.05)
        stored, _ = await ledgers.get(writer.id, fresh=True)
    await writer.append(b"goes on")
    await writer.aclose()


async def test_a_member_that_catches_up_does_not_count(cluster: TestCluster) -> None:
    """With nothing copied to it, a member that joined does not replace one that fails."""
    client = cluster.client(spare_after_s=0.1, copy_bytes_per_s=1.0)
    writer = await client.create_ledger(THREE_MIN_TWO)
    await writer.append_many([b"x" * 1000] * 50)
    first, second, third = members(writer)
    await lose(cluster, first)
    await writer.append(b"on two")
    await until(lambda: len(members(writer)) == 3)
    await writer.append(b"on three, one of which catches up")
    assert set(writer.in_sync) == {second, third}
    await lose(cluster, second)
    pending = asyncio.ensure_future(writer.append(b"waits"))
    await until(lambda: writer.in_sync == (third,))
    assert not pending.done()
    await writer.abort()
    with pytest.raises(Exception, match="closed"):
        await pending


@pytest.mark.parametrize("ends", ["recovered", "deleted"])
async def test_a_refused_writer_learns_that_its_ledger_ended(
    cluster: TestCluster, ends: str
) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(THREE_MIN_TWO)
    await writer.append(b"on three")
    first, second, third = members(writer)
    await lose(cluster, first)
    await writer.append(b"on two")
    await lose(cluster, second)
    await until(lambda: writer.in_sync == (third,))
    with pytest.raises(NotEnoughInSyncReplicasError):
        await writer.append(b"refused")
    other = cluster.client()
    if ends == "recovered":
        await other.recover_ledger(writer.id)
    else:
        await other.delete_ledger(writer.id)
    wanted = LedgerFencedError if ends == "recovered" else LedgerNotFoundError
    found: list[type[LedgerError]] = []

    async def try_to_append() -> None:
        while wanted not in found:
            try:
                await writer.append(b"too late")
            except LedgerError as error:
                found.append(type(error))
            await asyncio.sleep(0.05)

    # Within seconds of virtual time: after ten, a spare would be tried and report it too.
    await within(try_to_append(), 5.0)
    assert NotEnoughInSyncReplicasError not in found[found.index(wanted) :]
    await writer.abort()


@pytest.mark.parametrize("survivor", [0, 1, 2])
async def test_any_one_survivor_recovers_everything(cluster: TestCluster, survivor: int) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(3, 1))
    await writer.append_many([b"%d" % n for n in range(50)])
    left = members(writer)[survivor]
    for other in cluster.bookies:
        if other.id != left:
            await lose(cluster, other.id)
    info = await cluster.client().recover_ledger(writer.id)
    assert info.last_entry_id == 49
    assert await entries_of(cluster.client(), writer.id, 49) == [b"%d" % n for n in range(50)]
    await writer.abort()


async def test_a_lone_survivor_continues_if_one_is_enough(cluster: TestCluster) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(3, 1))
    await writer.append(b"0")
    for bookie_id in members(writer)[:2]:
        await lose(cluster, bookie_id)
        await writer.append(b"more")
    assert len(members(writer)) == 1
    await writer.aclose()
    assert (await cluster.client().ledger_info(writer.id)).last_entry_id == 2


async def test_fixed_membership_waits_for_its_members(cluster: TestCluster) -> None:
    writer = await cluster.client(fixed_membership=True).create_ledger(Quorum.all(2))
    await writer.append(b"0")
    lost = await lose(cluster, members(writer)[0])
    pending = asyncio.ensure_future(writer.append(b"1"))
    await asyncio.sleep(0.3)
    assert not pending.done()
    await lost.start()
    await lost.register(cluster.stores[0], writable=True)
    assert await within(pending) == 1
    assert len(writer.info.fragments) == 1
    await writer.aclose()


async def test_unclean_recovery_gives_up_what_no_replica_can_return(cluster: TestCluster) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(3, 1))
    await writer.append_many([b"%d" % n for n in range(10)])
    first, second, third = members(writer)
    for bookie_id in (first, second):
        await lose(cluster, bookie_id)
        await writer.append(b"given up")
    assert members(writer) == (third,)
    await lose(cluster, third)
    client = cluster.client(read_timeout_s=0.3)
    with pytest.raises(RecoveryUndecidedError):
        await client.recover_ledger(writer.id)
    await cluster.bookie(first).start()
    await cluster.bookie(first).register(cluster.stores[0], writable=True)
    info = await client.recover_ledger_unclean(writer.id)
    assert info.last_entry_id == 9
    assert [fragment.first_entry_id for fragment in info.given_up] == [10, 11]
    assert info.given_up[-1].ensemble == (third,)
    assert await entries_of(client, writer.id, 9) == [b"%d" % n for n in range(10)]
    assert (await cluster.client().recover_ledger(writer.id)).given_up == info.given_up
    with pytest.raises(LedgerFencedError):
        await writer.aclose()


async def test_unclean_recovery_gives_up_nothing_if_a_member_answers(
    cluster: TestCluster,
) -> None:
    client = cluster.client()
    writer = await client.create_ledger(THREE_MIN_TWO)
    await writer.append(b"kept")
    info = await cluster.client().recover_ledger_unclean(writer.id, even_if_writer_lives=True)
    assert (info.last_entry_id, info.given_up) == (0, ())
    quorum = await client.create_ledger(Quorum.all(3))
    with pytest.raises(LedgerError, match="in-sync mode"):
        await client.recover_ledger_unclean(quorum.id)
    await writer.abort()


async def test_members_that_left_while_the_writer_was_idle_come_back(cluster: TestCluster) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(THREE_MIN_TWO)
    await writer.append(b"0")
    everybody = set(members(writer))
    gone = [cluster.bookie(member) for member in members(writer)[:2]]
    await asyncio.sleep(0.3)  # long enough for the writer to have nothing to watch
    for bookie in gone:
        await lose(cluster, bookie.id)
    await until(lambda: len(writer.in_sync) == 1)
    for bookie in gone:
        await bookie.start()
        await bookie.register(cluster.stores[0], writable=True)
    await until(lambda: set(writer.in_sync) == everybody)
    assert await writer.append(b"1") == 1
    await writer.aclose()


async def test_unclean_recovery_gives_up_nothing_that_a_live_member_holds(
    cluster: TestCluster,
) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(2, 1))
    await writer.append(b"on two")
    first, second = members(writer)
    await lose(cluster, first)
    for number in range(20):
        await writer.append(b"on one: %d" % number)
    cluster.bookie(second).damage(writer.id, 20)
    client = cluster.client(read_timeout_s=0.3)
    with pytest.raises(RecoveryUndecidedError, match="entry 20"):
        await client.recover_ledger_unclean(writer.id, even_if_writer_lives=True)
    assert (await client.ledger_info(writer.id)).state == "in_recovery"
    await writer.abort()


@pytest.mark.parametrize("lac_delay_s", [0.05, 100.0])
async def test_only_a_member_without_the_oldest_entry_lags(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch, lac_delay_s: float
) -> None:
    """No bookie is suspected here, so that lag alone can make the silent one leave."""
    client = cluster.client(
        suspect_after_min_s=60.0,
        suspect_after_max_s=60.0,
        add_timeout_s=60.0,
        lac_delay_s=lac_delay_s,
    )
    quorum = Quorum.in_sync(3, 2, replica_lag_time_max=1.0)  # far above a busy loop
    writer = await client.create_ledger(quorum)
    silent = members(writer)[1]
    monkeypatch.setattr(cluster.bookie(silent), "answer_add", lambda _frame: b"")
    assert await writer.append(b"late at one", timeout=10.0) == 0
    assert silent not in members(writer)
    assert len(writer.in_sync) == 2
    await writer.aclose()


async def test_unclean_recovery_gives_up_a_complete_ledger_only_on_request(
    cluster: TestCluster,
) -> None:
    writer = await cluster.client(spare_after_s=1000.0).create_ledger(Quorum.in_sync(2, 1))
    await writer.append_many([b"%d" % n for n in range(3)])
    everybody = members(writer)
    for bookie_id in everybody:
        await lose(cluster, bookie_id)
    client = cluster.client(read_timeout_s=0.3)
    with pytest.raises(RecoveryUndecidedError, match="no replica of any"):
        await client.recover_ledger_unclean(writer.id, even_if_writer_lives=True)

    info = await client.recover_ledger_unclean(writer.id, gives_up_all=True)

    assert (info.last_entry_id, info.length) == (-1, 0)
    assert (info.given_up[0].first_entry_id, info.given_up[0].ensemble) == (0, everybody)
    assert (await client.ledger_info(writer.id)).given_up == info.given_up
    await writer.abort()


async def test_a_recovery_waits_only_briefly_for_a_member_that_is_not_needed(
    cluster: TestCluster,
) -> None:
    client = cluster.client(spare_after_s=1000.0)
    writer = await client.create_ledger(THREE_MIN_TWO)
    await writer.append(b"kept")
    await cluster.stores[0].aclose()
    await lose(cluster, members(writer)[0])
    patient = cluster.client(read_timeout_s=3600.0, call_timeout_s=3600.0)

    info = await within(patient.recover_ledger(writer.id), 10.0)

    assert info.last_entry_id == 0
    assert await entries_of(patient, writer.id, 0) == [b"kept"]

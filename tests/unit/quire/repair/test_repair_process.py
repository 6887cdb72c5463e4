"""Repair of a simulated cluster: bookies are lost, return, and drain, without any command."""

import asyncio
import contextvars
import logging
import random
from dataclasses import replace

import pytest

from ledger_client import LedgerClient, Quorum
from metadata.ids import BookieId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import RESTORE
from metadata.repair.jobs import Job, JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.status_store import StatusStore
from metadata.restore.restore_record import (
    RESTORE_NODE,
    RestoreRecord,
    RestoreState,
    accept_restore,
)
from quire.repair.ledger_reads import OrderlyStops
from quire.repair.standing import Standings
from quire.repair.worker import RepairWorker
from quire.server.server_log import LOGGER
from tests.simulation.nodes import BookieNode, ClientNode
from tests.support.repair.repair_world import LONG_S, LOST_AFTER_S, THREE, World, play
from tests.support.repair.replicas import end, start_again


def test_a_lost_bookie_is_replaced_in_every_closed_ledger() -> None:
    async def story(world: World) -> None:
        ids = await world.write(12)
        gone = world.ledger(ids[0]).fragments[0].ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        await world.wait_for_state(gone, Lifecycle.LOST)
        assert await world.wait(lambda: not world.is_named(gone))
        others = [b for b in world.ledger(ids[0]).fragments[0].ensemble if b != gone]
        for other in others[:2]:
            world.bookie(other).is_wanted = False
            world.bookie(other).kill(power_off=True)
        await world.read(ids)

    play(story)


def test_a_bookie_that_returns_in_time_is_not_replaced() -> None:
    async def story(world: World) -> None:
        ids = await world.write(5)
        before = [world.ledger(each) for each in ids]
        away = before[0].fragments[0].ensemble[0]
        world.bookie(away).kill(power_off=True)
        world.bookie(away).start_after(15.0)
        await asyncio.sleep(3 * LOST_AFTER_S)
        assert await world.state_of(away) is Lifecycle.ACTIVE
        assert [world.ledger(each) for each in ids] == before

    play(story)


def test_ledgers_with_one_copy_left_do_not_wait() -> None:
    async def story(world: World) -> None:
        ids = await world.write(3)
        gone = world.ledger(ids[0]).fragments[0].ensemble[:2]
        for bookie in gone:
            world.bookie(bookie).is_wanted = False
            world.bookie(bookie).kill(power_off=True)
        assert await world.wait(
            lambda: not set(gone) & set(world.ledger(ids[0]).fragments[0].ensemble), 60.0
        )
        assert [await world.state_of(bookie) for bookie in gone] == [Lifecycle.ACTIVE] * 2
        await world.read(ids)

    play(story, bookies=6, lost_after_s=3_000)


def test_a_bookie_that_stopped_in_order_gets_the_full_delay_until_it_starts_again() -> None:
    async def story(world: World) -> None:
        ids = await world.write(3)
        members = world.ledger(ids[0]).fragments[0].ensemble
        killed, stopped = members[:2]
        world.stop_in_order(stopped)
        world.bookie(killed).is_wanted = False
        world.bookie(killed).kill(power_off=True)
        await asyncio.sleep(60)
        assert world.ledger(ids[0]).fragments[0].ensemble == members
        bookie = world.bookie(stopped)
        bookie.is_wanted = True
        bookie.start()
        assert await world.wait(lambda: bookie.is_registered)
        bookie.is_wanted = False
        bookie.kill(power_off=True)
        assert await world.wait(
            lambda: not {killed, stopped} & set(world.ledger(ids[0]).fragments[0].ensemble), 60.0
        )
        assert [await world.state_of(b) for b in (killed, stopped)] == [Lifecycle.ACTIVE] * 2
        await world.read(ids)

    play(story, bookies=6, lost_after_s=3_000)


def test_an_urgent_repair_leaves_a_bookie_that_stopped_in_order() -> None:
    """Only one write set has one copy left: the others wait for the bookie that comes back."""

    async def story(world: World) -> None:
        ids = await world.write(3, Quorum(ensemble=4, write=2, ack=2))
        killed, _, stopped, _ = world.ledger(ids[0]).fragments[0].ensemble
        world.stop_in_order(stopped)
        await asyncio.sleep(5)
        world.bookie(killed).is_wanted = False
        world.bookie(killed).kill(power_off=True)
        assert await world.wait(
            lambda: killed not in world.ledger(ids[0]).fragments[0].ensemble, 60.0
        )
        await asyncio.sleep(60)
        assert stopped in world.ledger(ids[0]).fragments[0].ensemble
        await world.read(ids)

    play(story, bookies=7, lost_after_s=3_000)


def test_a_bookie_that_stops_in_order_while_a_worker_looks_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker has read which bookies are registered, and reads how the others stopped."""
    standings, stopped_in_order = RepairWorker._standings, OrderlyStops._stopped
    looks = list[Job]()
    is_looking = contextvars.ContextVar("is_looking", default=False)

    async def story(world: World) -> None:
        ids = await world.write(1, Quorum(ensemble=4, write=2, ack=2, stripe_entries=1))
        stopped, _, killed, _ = world.ledger(ids[0]).fragments[0].ensemble

        async def look(self: RepairWorker, job: Job) -> Standings:
            looks.append(job)
            is_looking.set(len(looks) == 2)  # the first look is for damaged entries
            return await standings(self, job)

        async def read(self: OrderlyStops, bookie_id: BookieId) -> bool:
            if is_looking.get() and world.bookie(stopped).is_wanted:
                world.stop_in_order(stopped)
                assert await world.wait(lambda: not world.bookie(stopped).is_registered)
                await asyncio.sleep(1)
            return await stopped_in_order(self, bookie_id)

        monkeypatch.setattr(RepairWorker, "_standings", look)
        monkeypatch.setattr(OrderlyStops, "_stopped", read)
        world.bookie(killed).is_wanted = False
        world.bookie(killed).kill(power_off=True)
        assert await world.wait(lambda: not world.is_named(killed))
        assert not world.bookie(stopped).is_registered
        assert stopped in world.ledger(ids[0]).fragments[0].ensemble

    play(story, bookies=7, lost_after_s=3_000)


def test_repair_slows_down_while_appends_are_slow(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    async def story(world: World) -> None:
        ids = await world.write(12)
        assert world.client is not None
        for bookie in world.cluster.bookies:
            bookie.disk_faults.delay_s_max = 0.4
        gone = world.ledger(ids[0]).fragments[0].ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        async with world.client.create_ledger(THREE) as writer:
            while world.is_named(gone):
                await writer.append(b"an append")
        for bookie in world.cluster.bookies:
            bookie.disk_faults.delay_s_max = 0.0
        await world.read(ids)

    play(story, bytes_per_s=100)
    assert "repair slowed" in caplog.text


def test_an_empty_ledger_is_repaired_without_its_key() -> None:
    """A position without an entry needs no copy (9.7), so an unknown key does not block it."""

    async def story(world: World) -> None:
        assert world.client is not None
        async with world.client.create_ledger(THREE) as writer:
            pass
        gone = world.ledger(writer.id).fragments[0].ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


def test_a_drained_bookie_is_named_nowhere() -> None:
    async def story(world: World) -> None:
        ids = await world.write(8)
        drained = world.ledger(ids[0]).fragments[0].ensemble[1]
        await world.change(drained, Lifecycle.DRAINING)
        await world.wait_for_state(drained, Lifecycle.DRAINED)
        assert not world.is_named(drained)
        await world.read(ids)

    play(story, bookies=5)


def test_a_bookie_is_not_drained_while_a_ledger_names_it() -> None:
    async def story(world: World) -> None:
        ids = await world.write(2)
        drains = world.ledger(ids[0]).fragments[0].ensemble[1]
        await world.change(drains, Lifecycle.DRAINING)
        await asyncio.sleep(LONG_S)
        assert world.is_named(drains), "no other bookie could take its place"
        assert await world.state_of(drains) is Lifecycle.DRAINING
        newcomer = BookieNode(world.cluster, 9)
        world.cluster.bookies.append(newcomer)
        newcomer.start()
        await world.wait_for_state(drains, Lifecycle.DRAINED)
        assert not world.is_named(drains)
        await world.read(ids)

    play(story, bookies=3)


def test_a_mark_that_a_dead_worker_left_does_not_keep_its_bookie() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        ledger = world.ledger(ledger_id)
        fragment = ledger.fragments[0]
        target = next(
            BookieId(bookie.bookie_id)
            for bookie in world.cluster.bookies
            if bookie.bookie_id is not None and bookie.bookie_id not in fragment.ensemble
        )
        ledgers = LedgerStore(world.store, world.rng, lambda: 5)
        stored, version = await ledgers.get(ledger.ledger_id, fresh=True)
        token = UpdateToken(world.rng.randbytes(16))
        marked = stored.with_fragment(0, replace(fragment, incoming=(target,)), token)
        await ledgers.compare_and_set(marked, version)
        await world.change(target, Lifecycle.DRAINING)
        await world.wait_for_state(target, Lifecycle.DRAINED)
        assert world.ledger(ledger_id).fragments == (fragment,)

    play(story)


def test_a_mark_in_an_open_ledger_does_not_keep_its_bookie() -> None:
    """The worker that set it has ended, and the fragment needs nothing any more."""

    async def story(world: World) -> None:
        assert world.client is not None
        writer = await world.client.create_ledger(Quorum(ensemble=2, write=2, ack=2))
        await writer.append(b"first")
        left = world.ledger(writer.id).fragments[0].ensemble[0]
        end(world, left)
        await writer.append(b"second")
        start_again(world, left)
        assert await world.wait(lambda: world.bookie(left).is_registered)
        ledgers = LedgerStore(world.store, world.rng, lambda: 5)
        stored, version = await ledgers.get(writer.id, fresh=True)
        named = {bookie for fragment in stored.fragments for bookie in fragment.ensemble}
        ids = [bookie.bookie_id for bookie in world.cluster.bookies if bookie.bookie_id is not None]
        target = next(BookieId(each) for each in ids if each not in named)
        first = stored.fragments[0]
        token = UpdateToken(world.rng.randbytes(16))
        marked = stored.with_fragment(0, replace(first, incoming=(target,)), token)
        await ledgers.compare_and_set(marked, version)
        await world.change(target, Lifecycle.DRAINING)
        await world.wait_for_state(target, Lifecycle.DRAINED)
        assert world.ledger(writer.id).fragments[0] == first
        await writer.append(b"third")
        await writer.aclose()

    play(story, bookies=5)


def test_without_a_target_the_job_is_blocked_until_a_bookie_joins() -> None:
    async def story(world: World) -> None:
        ids = await world.write(2)
        gone = world.ledger(ids[0]).fragments[0].ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)

        def blocked() -> list[Job]:
            return [job for job in world.jobs.published() if job.state is JobState.BLOCKED]

        assert await world.wait(lambda: len(blocked()) == 2)
        found = blocked()
        assert "needs 1 more bookie" in found[0].blocked_reason
        summary = await StatusStore(world.store, world.rng).get()
        assert summary is not None
        newcomer = BookieNode(world.cluster, 9)
        world.cluster.bookies.append(newcomer)
        newcomer.start()
        assert await world.wait(lambda: not world.is_named(gone))
        await world.read(ids)

    play(story, bookies=3)


def test_a_live_idle_writer_is_not_fenced() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        writer = await world.client.create_ledger(THREE)
        await writer.append(b"first")
        gone = world.ledger(writer.id).last_fragment.ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        await world.wait_for_state(gone, Lifecycle.LOST)
        await asyncio.sleep(100)
        assert world.ledger(writer.id).state is LedgerState.OPEN
        assert not world.is_named(gone)
        await writer.append(b"second")
        await writer.aclose()

    play(story)


def test_an_idle_writer_replaces_a_member_that_drains() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        writer = await world.client.create_ledger(THREE)
        await writer.append(b"first")
        drained = world.ledger(writer.id).last_fragment.ensemble[0]
        await world.change(drained, Lifecycle.DRAINING)
        is_replaced = lambda: drained not in world.ledger(writer.id).last_fragment.ensemble  # noqa: E731
        assert await world.wait(is_replaced, 10.0), "before the bookie refuses entries"
        assert world.ledger(writer.id).state is LedgerState.OPEN
        await writer.append(b"second")
        await writer.aclose()

    play(story)


def test_the_ledger_of_a_dead_writer_is_recovered_and_repaired() -> None:
    async def story(world: World) -> None:
        ids: list[int] = []

        async def write(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
            writer = await client.create_ledger(THREE)
            await writer.append_many([b"%d of 0" % number for number in range(20)])
            ids.append(writer.id)
            await asyncio.Event().wait()

        other = ClientNode(world.cluster, "other", write)
        other.start()
        assert await world.wait(lambda: bool(ids))
        other.is_wanted = False
        other.kill(power_off=True)
        gone = world.ledger(ids[0]).last_fragment.ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        assert await world.wait(lambda: world.ledger(ids[0]).state is LedgerState.CLOSED)
        assert await world.wait(lambda: not world.is_named(gone))
        await world.read(ids)

    play(story)


def test_a_ledger_that_is_created_after_the_pass_is_found_whatever_its_id() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        async with world.client.create_ledger(THREE, ledger_id=10**6) as last:
            await last.append(b"entry")
        status = StatusStore(world.store, world.rng)
        async with asyncio.timeout(LONG_S):
            while (found := await status.get()) is None or found.audited_ms is None:  # noqa: ASYNC110
                await asyncio.sleep(1.0)
        ids = await world.write(3)
        gone = world.ledger(ids[0]).fragments[0].ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        await world.wait_for_state(gone, Lifecycle.LOST)
        assert await world.wait(lambda: not world.is_named(gone), 100.0)

    play(story)


def test_no_ledger_is_recovered_before_a_restore_is_accepted() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        writer = await world.client.create_ledger(THREE)
        await writer.append(b"first")
        ledgers = LedgerStore(world.store, world.rng, lambda: 5)
        ledger, version = await ledgers.get(LedgerId(writer.id), fresh=True)
        token = UpdateToken(world.rng.randbytes(16))
        await ledgers.compare_and_set(ledger.with_recovery_begun(token), version)
        record = RestoreRecord(b"t" * 16, RestoreState.FINISHED, 5, b"d" * 32)
        await world.store.create(RESTORE, RESTORE_NODE.pack(record))
        gone = ledger.last_fragment.ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        await world.wait_for_state(gone, Lifecycle.LOST)
        await asyncio.sleep(100)
        assert world.ledger(writer.id).state is LedgerState.IN_RECOVERY
        await accept_restore(world.store)
        assert await world.wait(lambda: world.ledger(writer.id).state is LedgerState.CLOSED)
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


@pytest.mark.parametrize("seed", range(4))
def test_another_process_continues_when_one_dies(seed: int) -> None:
    async def story(world: World) -> None:
        ids = await world.write(20)
        gone = world.ledger(ids[0]).fragments[0].ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        await world.wait_for_state(gone, Lifecycle.LOST)
        await asyncio.sleep(world.rng.random())
        dead = world.repairers[world.rng.randrange(2)]
        dead.is_wanted = False
        dead.kill(power_off=True)
        assert await world.wait(lambda: not world.is_named(gone))
        await world.read(ids)

    play(story, repairers=2, seed=seed)

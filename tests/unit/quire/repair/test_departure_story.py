"""Bookies of a simulated cluster that go and return: what is copied, when, and what is not.

Every part is the production code, on simulated disks, networks and metadata.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import REPAIR_JOBS
from metadata.repair.job_store import JobStore
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.settings_store import RepairSettingsStore
from metadata.repair.status_store import StatusStore
from metadata.store.memory_tree import NodeChange
from quire.repair.needs import RepairClass
from tests.campaign.repair.restoration import PROGRESS_S_MAX, Left, Restoration
from tests.simulation.nodes import BookieNode
from tests.support.repair.repair_world import LONG_S, LOST_AFTER_S, World, play
from tests.support.repair.replicas import check_whole, end, start_again

SETTLED_S = 60.0
PATIENT = {"lost_after_s": 3_000, "urgent_after_s": 3_000}


class PublishedJobs:
    """Paths of all jobs that are published after it was made. A session of the metadata service."""

    def __init__(self, world: World) -> None:
        self.paths: list[str] = []
        world.cluster.metadata.open_session(self)

    def notice(self, change: NodeChange) -> None:
        """See `metadata.store.memory_server.Session`."""
        if change.path.startswith(f"{REPAIR_JOBS}/"):
            self.paths.append(change.path)


def stored(world: World, ids: Sequence[int]) -> list[LedgerMetadata]:
    return [world.ledger(each) for each in ids]


def member(world: World, ledger_id: int) -> str:
    return world.ledger(ledger_id).fragments[0].ensemble[0]


async def set_delay(world: World, lost_after_s: int) -> None:
    await RepairSettingsStore(world.store, world.rng).change(lost_after_s=lost_after_s)


async def wait_until_whole(world: World, ids: Sequence[int], *gone: str) -> None:
    """Wait until no ledger names these bookies, and check all copies."""
    assert await world.wait(lambda: not any(map(world.is_named, gone)))
    await asyncio.sleep(SETTLED_S)
    assert not await JobStore(world.store, world.rng).published()
    for each in ids:
        check_whole(world, each)
    await world.read(ids)


async def wait_until_registered(world: World, bookie: BookieNode) -> None:
    assert await world.wait(lambda: bookie.is_registered)


async def stop_in_order(bookie: BookieNode) -> None:
    await bookie.stop()


async def crash(bookie: BookieNode) -> None:
    bookie.kill(power_off=True)
    bookie.start_after(8.0)


@pytest.mark.parametrize("restart", [stop_in_order, crash], ids=["in order", "crashes"])
def test_a_restart_of_all_bookies_one_after_the_other_starts_no_repair(
    restart: Callable[[BookieNode], Awaitable[None]],
) -> None:
    """The auditor restarts with each of them."""

    async def story(world: World) -> None:
        ids = await world.write(10)
        await asyncio.sleep(SETTLED_S)
        before, jobs = stored(world, ids), PublishedJobs(world)
        for number, bookie in enumerate(world.cluster.bookies):
            process = world.repairers[number % 2]
            process.kill(power_off=True)
            await restart(bookie)
            assert not bookie.is_registered
            await wait_until_registered(world, bookie)
            process.start()
            assert await world.state_of(str(bookie.bookie_id)) is Lifecycle.ACTIVE
        await asyncio.sleep(2 * LOST_AFTER_S)
        assert jobs.paths == []
        assert stored(world, ids) == before

    play(story, bookies=5, repairers=2)


def test_bookies_that_return_in_time_start_no_repair_although_several_were_away() -> None:
    """All bookies of a rack restart at once."""

    async def story(world: World) -> None:
        ids = await world.write(10)
        await asyncio.sleep(SETTLED_S)
        before, jobs = stored(world, ids), PublishedJobs(world)
        for bookie in world.cluster.bookies[:4]:
            bookie.kill(power_off=True)
            bookie.start_after(20.0)
        await asyncio.sleep(2 * LOST_AFTER_S)
        assert jobs.paths == []
        assert stored(world, ids) == before
        await world.read(ids)

    play(story, bookies=6, urgent_after_s=LOST_AFTER_S)


def test_several_bookies_that_are_lost_at_once_are_replaced() -> None:
    async def story(world: World) -> None:
        ids = await world.write(15)
        gone = [str(bookie.bookie_id) for bookie in world.cluster.bookies[:2]]
        end(world, *gone)
        await wait_until_whole(world, ids, *gone)
        assert [await world.state_of(each) for each in gone] == [Lifecycle.LOST] * 2

    play(story, bookies=7)


def test_bookies_that_are_lost_one_after_the_other_are_replaced() -> None:
    """The second one is lost while the ledgers of the first are copied."""

    async def story(world: World) -> None:
        ids = await world.write(15)
        first, second = (str(bookie.bookie_id) for bookie in world.cluster.bookies[:2])
        end(world, first)
        await asyncio.sleep(0.5 * LOST_AFTER_S)
        end(world, second)
        await wait_until_whole(world, ids, first, second)

    play(story, bookies=7, bytes_per_s=20)


def test_a_change_of_the_delay_counts_for_a_bookie_that_is_away() -> None:
    async def story(world: World) -> None:
        ids = await world.write(6)
        before, away = stored(world, ids), member(world, ids[0])
        end(world, away)
        await asyncio.sleep(0.5 * LOST_AFTER_S)
        await set_delay(world, 3_000)
        await asyncio.sleep(3 * LOST_AFTER_S)
        assert await world.state_of(away) is Lifecycle.ACTIVE
        assert stored(world, ids) == before
        await set_delay(world, 1)
        await world.wait_for_state(away, Lifecycle.LOST)
        await wait_until_whole(world, ids, away)

    play(story, bookies=5, urgent_after_s=3_000)


@pytest.mark.parametrize("away_s", [0.8, 1.0, 1.2])
def test_a_bookie_that_goes_and_returns_again_and_again(away_s: float) -> None:
    """Each time it is away for about the delay. Nothing is copied below it, and all copies are
    whole after it.
    """

    async def story(world: World) -> None:
        ids = await world.write(10)
        await asyncio.sleep(SETTLED_S)
        before, jobs = stored(world, ids), PublishedJobs(world)
        bookie = world.bookie(member(world, ids[0]))
        for _ in range(6):
            bookie.kill(power_off=True)
            bookie.start_after(away_s * LOST_AFTER_S)
            await asyncio.sleep(away_s * LOST_AFTER_S)
            await wait_until_registered(world, bookie)
            await asyncio.sleep(5.0)
        await world.wait_for_state(str(bookie.bookie_id), Lifecycle.ACTIVE)
        await wait_until_whole(world, ids)
        if away_s < 1:
            assert jobs.paths == []
            assert stored(world, ids) == before
        quiet = PublishedJobs(world)
        await asyncio.sleep(LONG_S)
        assert quiet.paths == []

    play(story, bookies=5)


def test_a_full_bookie_is_not_lost_until_it_ends() -> None:
    """A read-only bookie keeps its copies, and is no target of others."""

    async def story(world: World) -> None:
        ids = await world.write(10)
        await asyncio.sleep(SETTLED_S)
        assert world.client is not None
        before, jobs = stored(world, ids), PublishedJobs(world)
        full, other, *_ = world.ledger(ids[0]).fragments[0].ensemble
        bookies = (await world.client._session.services()).directory
        world.bookie(full).disk_faults.capacity_bytes = 2_000
        assert await world.wait(lambda: not bookies.bookies[BookieId(full)].writable)
        await asyncio.sleep(3 * LOST_AFTER_S)
        assert jobs.paths == []
        assert stored(world, ids) == before
        end(world, other)
        await wait_until_whole(world, ids, other)
        for now, then in zip(stored(world, ids), before, strict=True):
            assert now.names(BookieId(full)) == then.names(BookieId(full))
        end(world, full)
        await wait_until_whole(world, ids, full)

    play(story, bookies=6)


def test_a_ledger_without_a_copy_is_repaired_when_a_bookie_returns() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone = world.ledger(ledger_id).fragments[0].ensemble
        end(world, *gone)
        for bookie in gone:
            await world.wait_for_state(bookie, Lifecycle.LOST)
        jobs = JobStore(world.store, world.rng)
        async with asyncio.timeout(LONG_S):
            while {n.urgency for n in await jobs.published()} != {RepairClass.LOST}:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        quiet = PublishedJobs(world)
        await asyncio.sleep(LONG_S)
        assert quiet.paths == [], "it is not tried again and again"
        start_again(world, gone[0])
        await wait_until_whole(world, [ledger_id], *gone[1:])

    play(story, bookies=7)


async def left_of(world: World) -> Left:
    status = await StatusStore(world.store, world.rng).get()
    assert status is not None
    return Left(
        is_noticed=True,
        ledgers=sum(total.ledgers for total in status.totals),
        bytes_left=status.bytes_left,
        blocked=sum(total.ledgers for total in status.blocked),
    )


async def watch_progress(world: World, restoration: Restoration) -> list[float]:
    """Follow what is left until it is nothing; return the times at which it was read."""
    times: list[float] = []
    while not (left := await left_of(world)).is_nothing:
        times.append(world.cluster.loop.now_s)
        assert not restoration.see(left, times[-1])
        await asyncio.sleep(1.0)
    return times


def test_the_bytes_that_are_left_fall_within_two_minutes_unless_repair_is_paused() -> None:
    async def story(world: World) -> None:
        ids = await world.write(20)
        gone = member(world, ids[0])
        end(world, gone)
        await world.wait_for_state(gone, Lifecycle.LOST)
        settings = RepairSettingsStore(world.store, world.rng)
        now_ms = 1_700_000_000_000 + int(world.cluster.loop.now_s * 1_000)
        await settings.change(paused_until_ms=now_ms + 1_000_000_000)
        await asyncio.sleep(1.5 * PROGRESS_S_MAX)  # copies under way end
        paused, before = await left_of(world), stored(world, ids)
        assert paused.ledgers
        await asyncio.sleep(2 * PROGRESS_S_MAX)
        assert await left_of(world) == paused
        assert stored(world, ids) == before
        await settings.change(paused_until_ms=0)
        began_s = world.cluster.loop.now_s
        times = await watch_progress(world, Restoration(began_s))
        assert times[-1] - began_s > PROGRESS_S_MAX, "so long that the limit matters"
        await settings.change(bytes_per_s=0)
        await wait_until_whole(world, ids, gone)

    play(story, bookies=5, bytes_per_s=20)

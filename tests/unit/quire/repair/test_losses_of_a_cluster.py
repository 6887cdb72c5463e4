"""Accepted losses in a simulated cluster: what is left is copied, and no lost bookie is named."""

import asyncio
import random

import pytest

from ledger_client import EntryLostError, LedgerClient, Quorum, RecoveryUndecidedError
from ledger_client.digest import LedgerKeys
from ledger_client.reading.verification import verify_replicas
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.job_store import JobStore
from metadata.repair.lifecycle import Lifecycle
from quire.repair.losses import LossAcceptance, LossSurvey
from quire.repair.needs import RepairClass
from quire.repair.undecided_end import UndecidedEnd
from tests.simulation.nodes import ClientNode
from tests.support.repair.repair_world import LONG_S, THREE, World, loss_parts, play


async def acceptance(world: World, ledger: LedgerMetadata) -> LossAcceptance:
    parts, pool, keys = await loss_parts(world, ledger)
    return LossAcceptance(parts, LossSurvey(pool, keys))


async def undecided_end(world: World, ledger: LedgerMetadata) -> UndecidedEnd:
    parts, pool, keys = await loss_parts(world, ledger)
    return UndecidedEnd(parts, pool, keys, LossSurvey(pool, keys))


def test_an_accepted_loss_ends_the_class_lost_and_names_no_lost_bookie() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        (ledger_id,) = await world.write(1)
        before = world.ledger(ledger_id)
        gone = before.fragments[0].ensemble
        for bookie in gone:
            world.bookie(bookie).is_wanted = False
            world.bookie(bookie).kill(power_off=True)
        _, report = await (await acceptance(world, before)).accept(before.ledger_id)
        assert report.lost == (), "they are only away"
        for bookie in gone:
            await world.wait_for_state(bookie, Lifecycle.LOST)
        jobs = JobStore(world.store, world.rng)
        async with asyncio.timeout(LONG_S):
            while True:
                if any(job_name.urgency == RepairClass.LOST for job_name in await jobs.published()):
                    break
                await asyncio.sleep(1)
        _, report = await (await acceptance(world, before)).accept(before.ledger_id)
        assert report.lost == ((0, 19),)
        assert await world.wait(lambda: not any(map(world.is_named, gone)), 700.0)
        for bookie in gone:
            await world.change(bookie, Lifecycle.DRAINED)
            await world.change(bookie, Lifecycle.REMOVED)
        ledger = world.ledger(ledger_id)
        assert (ledger.last_entry_id, ledger.length) == (before.last_entry_id, before.length)
        async with world.client.open_ledger(ledger_id) as reader:
            with pytest.raises(EntryLostError) as raised:
                await reader.read_entry(3)
            assert (raised.value.lost_first, raised.value.lost_last) == (0, 19)
            with pytest.raises(EntryLostError):
                await anext(reader.tail())
        assert not [n for n in await jobs.published() if n.ledger_id == ledger_id]

    play(story, bookies=7)


def test_entries_that_are_left_get_their_copies_again() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        quorum = Quorum(ensemble=4, write=2, ack=2)
        async with world.client.create_ledger(quorum) as writer:
            for first in range(0, 5_000, 500):
                await writer.append_many([b"%d" % (first + number) for number in range(500)])
        before = world.ledger(writer.id)
        a, b, *_ = before.fragments[0].ensemble
        for bookie in (a, b):
            world.bookie(bookie).is_wanted = False
            world.bookie(bookie).kill(power_off=True)
        for bookie in (a, b):
            await world.wait_for_state(bookie, Lifecycle.LOST)
        _, report = await (await acceptance(world, before)).accept(before.ledger_id)
        assert report.lost == ((0, 1023), (4096, 4999)), "the write set of stripes 0 and 4 is a, b"
        assert await world.wait(lambda: not world.is_named(a) and not world.is_named(b), 700.0)
        async with world.client.open_ledger(writer.id) as reader:
            found = [e.data async for batch in reader.read(1024, 4095) for e in batch]
            assert found == [b"%d" % number for number in range(1024, 4096)]
            with pytest.raises(EntryLostError):
                await reader.read_entry(4999)
        ledger = world.ledger(writer.id)
        pool = (await world.client._session.services()).pool
        keys = LedgerKeys.of(ledger, b"")
        reports = await verify_replicas(pool, ledger, keys, 4999, lambda _: None)
        assert all(replica_report.is_well for replica_report in reports)

    play(story, bookies=8)


def test_a_recovery_that_cannot_be_decided_ends_and_is_repaired() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        ids: list[int] = []

        async def write(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
            writer = await client.create_ledger(THREE)
            await writer.append_many([b"%d of 0" % number for number in range(20)])
            ids.append(writer.id)
            await asyncio.Event().wait()

        other = ClientNode(world.cluster, "other", write)
        other.start()
        assert await world.wait(lambda: bool(ids))
        await asyncio.sleep(5)
        other.is_wanted = False
        other.kill(power_off=True)
        before = world.ledger(ids[0])
        gone = before.last_fragment.ensemble[:2]
        for bookie in gone:
            world.bookie(bookie).is_wanted = False
            world.bookie(bookie).kill(power_off=True)
        with pytest.raises(RecoveryUndecidedError):
            await world.client.recover_ledger(ids[0])
        end = await undecided_end(world, before)
        with pytest.raises(RecoveryUndecidedError):
            await end.close(before.ledger_id)
        for bookie in gone:
            await world.wait_for_state(bookie, Lifecycle.LOST)
        closed, report = await end.close(before.ledger_id)
        assert report is not None
        assert list(report.gone) == list(gone)
        assert closed.last_entry_id == 19
        assert [lost_range.is_after_the_end for lost_range in closed.lost] == [True]
        assert await world.wait(lambda: not any(map(world.is_named, gone)), 700.0)
        await world.read(ids)
        async with world.client.open_ledger(ids[0]) as reader:
            with pytest.raises(EntryLostError):
                await reader.read_entry(20)

    play(story, bookies=6)

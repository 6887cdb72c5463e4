"""Ledgers of dead writers are found and recovered, and those of live writers are left alone."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from ledger_client import (
    AbandonedLedger,
    AbandonedLedgers,
    AbandonedRecovered,
    ClientConfig,
    LedgerClient,
    LedgerInfo,
    LedgerWriter,
    MetadataRefusedError,
    MetadataUnavailableError,
    RecoveryUndecidedError,
    UnauthorizedError,
)
from ledger_client.ledger_calls import LedgerCalls
from ledger_client.recovery.missing_writers import LOOKS_APART_S_MAX, SESSIONS
from metadata.ids import UPDATE_TOKEN_BYTES, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import RESTORE, client_path
from metadata.registry.registration import OWNERS_FEATURE
from metadata.restore.restore_record import RESTORE_NODE, RestoreRecord, RestoreState
from metadata.security.ledger_roles import LedgerRight
from metadata.store.interface import SESSION_TIMEOUT_S
from tests.simulation.nodes import ClientNode
from tests.support.ledger_client.cluster import TestCluster
from tests.support.repair.repair_world import PLAN, THREE, World, play, play_plan

GRACE_S = SESSIONS * SESSION_TIMEOUT_S
SOON_S = 2.0
"""Time for everything but the wait for a writer, in virtual time."""
NOTHING = AbandonedRecovered((), {})


async def start_writer(world: World, name: str = "writer") -> tuple[ClientNode, LedgerWriter]:
    """Start a client with a ledger of 20 acknowledged entries, whose LAC was not sent yet."""
    written: asyncio.Future[LedgerWriter] = asyncio.get_running_loop().create_future()

    async def work(_node: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        writer = await client.create_ledger(THREE)
        await writer.append_many([b"%d" % number for number in range(20)])
        written.set_result(writer)
        await asyncio.Event().wait()

    node = ClientNode(world.cluster, name, work)
    node.start()
    return node, await written


async def write_and_die(world: World, name: str = "writer") -> int:
    """Write a ledger with a client that ends at once, and wait for the end of its session."""
    node, writer = await start_writer(world, name)
    node.kill(power_off=False)
    await asyncio.sleep(world.cluster.plan.session_timeout_s + SOON_S)
    return writer.id


def client_of(world: World) -> LedgerClient:
    assert world.client is not None
    return world.client


def now_s() -> float:
    return asyncio.get_running_loop().time()


def play_alone(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Run a story in a cluster without repair."""
    play(story, repairers=0)


def test_entries_that_no_reader_sees_are_found() -> None:
    async def story(world: World) -> None:
        client, ledger_id = client_of(world), await write_and_die(world)
        async with client.open_ledger(ledger_id) as reader:
            seen = reader.last_confirmed
        assert seen < 19
        expected = AbandonedLedger(ledger_id, seen, 19)
        assert expected.hidden_count == 19 - seen
        assert await client.abandoned_ledgers([ledger_id]) == AbandonedLedgers((expected,), 0)
        assert world.ledger(ledger_id).state is LedgerState.OPEN

    play_alone(story)


def test_ledgers_that_live_or_are_whole_are_not_found() -> None:
    async def story(world: World) -> None:
        _, writer = await start_writer(world)
        closed = await world.write(1)
        nothing = AbandonedLedgers((), 0)
        assert await client_of(world).abandoned_ledgers([writer.id, *closed, 999]) == nothing
        node, quiet = await start_writer(world, "quiet")
        await asyncio.sleep(SOON_S)  # it sends its LAC
        node.kill(power_off=False)
        await asyncio.sleep(world.cluster.plan.session_timeout_s + SOON_S)
        assert await client_of(world).abandoned_ledgers([quiet.id]) == nothing

    play_alone(story)


def test_the_ledgers_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger_client.recovery.abandoned_recovery.ASKED_MAX", 2)
    monkeypatch.setattr("ledger_client.recovery.abandoned_recovery.READS_AT_ONCE", 2)

    async def story(world: World) -> None:
        ids = [await write_and_die(world, f"writer {number}") for number in range(3)]
        found = await client_of(world).abandoned_ledgers(ids)
        assert [ledger.ledger_id for ledger in found.ledgers] == ids[:2]
        assert found.unasked_count == 1

    play_alone(story)


def test_bookies_that_do_not_answer_are_left_out() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        for member in world.ledger(ledger_id).last_fragment.ensemble[:2]:
            world.bookie(member).is_wanted = False
            world.bookie(member).kill(power_off=True)
        (found,) = (await client_of(world).abandoned_ledgers([ledger_id])).ledgers
        assert found.last_stored == 19

    play_alone(story)


def test_a_ledger_is_recovered_once_its_writer_was_missing_long_enough() -> None:
    """The ledger of a live writer beside it stays open, and is appended to."""

    async def story(world: World) -> None:
        _, writer = await start_writer(world, "live")
        ledger_id = await write_and_die(world)
        began_s = now_s()
        done = await client_of(world).recover_abandoned([writer.id, ledger_id])
        assert done == AbandonedRecovered((ledger_id,), {})
        assert GRACE_S <= now_s() - began_s < GRACE_S + SOON_S
        assert world.ledger(ledger_id).last_entry_id == 19
        assert world.ledger(writer.id).state is LedgerState.OPEN
        assert await writer.append(b"more") == 20

    play_alone(story)


def test_without_an_abandoned_ledger_nothing_is_waited_for() -> None:
    async def story(world: World) -> None:
        _, writer = await start_writer(world)
        closed = await world.write(1)
        began_s = now_s()
        assert await client_of(world).recover_abandoned([writer.id, *closed, 999]) == (
            AbandonedRecovered((*closed, 999), {})
        )
        assert now_s() - began_s < SOON_S

    play_alone(story)


@pytest.mark.parametrize(("session_s", "wait_s"), [(1.0, GRACE_S), (30.0, 60.0)])
def test_the_wait_has_two_sessions_of_this_client_or_of_the_default(
    session_s: float, wait_s: float
) -> None:
    """Writers may have longer sessions than a reader that chose a short one."""

    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        began_s = now_s()
        await client_of(world).recover_abandoned([ledger_id])
        assert wait_s <= now_s() - began_s < wait_s + SOON_S

    play_plan(story, replace(PLAN, config=ClientConfig(session_timeout_s=session_s)), 0, 1, {})


def test_a_writer_that_registers_again_keeps_its_ledger() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        recovery = asyncio.create_task(client_of(world).recover_abandoned([ledger_id]))
        await asyncio.sleep(0.9 * GRACE_S)
        await world.store.create(client_path(world.ledger(ledger_id).writer), b"")
        assert await recovery == NOTHING
        assert world.ledger(ledger_id).state is LedgerState.OPEN

    play_alone(story)


def test_a_writer_that_registers_again_while_others_are_recovered_keeps_its_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recoveries may take long, so that each ledger is looked at once more before its own."""
    monkeypatch.setattr("ledger_client.recovery.abandoned_recovery.RECOVERIES_AT_ONCE", 1)
    recover = LedgerCalls.recover

    async def story(world: World) -> None:
        ids = [await write_and_die(world, f"writer {number}") for number in range(2)]

        async def slow(self: LedgerCalls, *arguments: Any) -> LedgerInfo:
            info = await recover(self, *arguments)
            if info.id == ids[0]:
                await world.store.create(client_path(world.ledger(ids[1]).writer), b"")
            return info

        monkeypatch.setattr(LedgerCalls, "recover", slow)
        assert await client_of(world).recover_abandoned(ids) == AbandonedRecovered((ids[0],), {})
        assert world.ledger(ids[1]).state is LedgerState.OPEN

    play_alone(story)


def test_two_recoveries_at_once_end_in_one_close() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        other: asyncio.Future[AbandonedRecovered] = asyncio.get_running_loop().create_future()

        async def work(_node: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
            other.set_result(await client.recover_abandoned([ledger_id]))
            await asyncio.Event().wait()

        ClientNode(world.cluster, "other", work).start()
        mine = await client_of(world).recover_abandoned([ledger_id])
        assert mine == await other == AbandonedRecovered((ledger_id,), {})
        assert world.ledger(ledger_id).last_entry_id == 19

    play_alone(story)


def test_a_ledger_that_is_fenced_already_is_recovered_at_once() -> None:
    """A recovery began and did not end. The writer is registered, but nothing can be appended."""

    async def story(world: World) -> None:
        _, writer = await start_writer(world)
        ledgers = LedgerStore(world.store, world.rng, lambda: 5)
        metadata, version = await ledgers.get(writer.id, fresh=True)
        begun = metadata.with_recovery_begun(UpdateToken(bytes(UPDATE_TOKEN_BYTES)))
        await ledgers.compare_and_set(begun, version)
        (found,) = (await client_of(world).abandoned_ledgers([writer.id])).ledgers
        assert found.last_stored == 19
        began_s = now_s()
        done = await client_of(world).recover_abandoned([writer.id])
        assert done == AbandonedRecovered((writer.id,), {})
        assert now_s() - began_s < SOON_S
        assert world.ledger(writer.id).last_entry_id == 19

    play_alone(story)


def test_a_ledger_without_a_writer_stays_open() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        ledgers = LedgerStore(world.store, world.rng, lambda: 5)
        metadata, version = await ledgers.get(LedgerId(ledger_id), fresh=True)
        token = UpdateToken(bytes(UPDATE_TOKEN_BYTES))
        unclaimed = replace(metadata, custom={UNCLAIMED_NAME: b""}, update_token=token)
        await ledgers.compare_and_set(unclaimed, version)
        assert await client_of(world).abandoned_ledgers([ledger_id]) == AbandonedLedgers((), 0)
        assert await client_of(world).recover_abandoned([ledger_id]) == NOTHING
        assert world.ledger(ledger_id).state is LedgerState.OPEN

    play_alone(story)


def test_nothing_is_recovered_while_a_restore_is_not_accepted() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        record = RestoreRecord(bytes(16), RestoreState.FINISHED, 1, bytes(32))
        await world.store.create(RESTORE, RESTORE_NODE.pack(record))
        done = await client_of(world).recover_abandoned([ledger_id])
        assert done.ended == ()
        assert isinstance(done.failures[ledger_id], MetadataRefusedError)
        assert "quire metadata accept-restore" in str(done.failures[ledger_id])
        assert world.ledger(ledger_id).state is LedgerState.OPEN

    play_alone(story)


def test_a_recovery_that_too_few_bookies_answer_is_reported() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        for member in world.ledger(ledger_id).last_fragment.ensemble:
            world.bookie(member).is_wanted = False
            world.bookie(member).kill(power_off=True)
        done = await client_of(world).recover_abandoned([ledger_id], timeout=60)
        assert done.ended == ()
        assert isinstance(done.failures[ledger_id], RecoveryUndecidedError)

    play_alone(story)


def test_looks_that_do_not_count_together_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer may have been there between them, and a slow service would need ever more."""
    pause_s = LOOKS_APART_S_MAX + 1
    monkeypatch.setattr("ledger_client.recovery.abandoned_recovery.PAUSE_S_MIN", pause_s)

    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        done = await client_of(world).recover_abandoned([ledger_id])
        assert isinstance(done.failures[ledger_id], MetadataUnavailableError)
        assert world.ledger(ledger_id).state is LedgerState.OPEN

    play_alone(story)


async def test_without_the_right_nothing_is_changed_or_waited_for(cluster: TestCluster) -> None:
    for bookie in cluster.bookies:
        bookie.principal, bookie.rights = "User:alice", int(LedgerRight.READ)
        await bookie.unregister()
        await bookie.register(cluster._store, features=(OWNERS_FEATURE,))
    writer = await cluster.client().create_ledger(THREE)
    await writer.append(b"one")
    cluster.server.end_session(cluster.stores[0].session_id)
    reader = cluster.client()
    async with asyncio.timeout(GRACE_S / 2):
        done = await reader.recover_abandoned([writer.id])
    assert done.ended == ()
    assert isinstance(done.failures[writer.id], UnauthorizedError)
    assert "`quire grant add 'User:alice' recoverer ledger:1`" in str(done.failures[writer.id])
    assert (await reader.ledger_info(writer.id)).state is LedgerState.OPEN

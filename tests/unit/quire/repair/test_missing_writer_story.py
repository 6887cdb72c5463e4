"""An open ledger whose writer is gone, and that names a lost bookie: how soon it is recovered."""

import asyncio
import random

import pytest

from ledger_client import LedgerClient, Quorum
from ledger_client.recovery.missing_writers import SESSIONS
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.repair.lifecycle import Lifecycle
from quire.repair.worker import LOOK_EVERY_S
from tests.simulation.nodes import ClientNode
from tests.support.repair.copy_actions import Halt, at_each_action
from tests.support.repair.repair_world import THREE, World, play
from tests.support.repair.replicas import check_whole, end, start_again

SOON_S = 5.0
"""Time for what comes before and after the wait, with one worker."""


async def write_and_die(world: World) -> int:
    """Write a ledger with a client that ends before it closes the ledger; return its id."""
    written: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work(_node: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        writer = await client.create_ledger(THREE)
        await writer.append_many([b"%d" % number for number in range(20)])
        written.set_result(writer.id)
        await asyncio.Event().wait()

    node = ClientNode(world.cluster, "writer", work)
    node.start()
    ledger_id = await written
    node.kill(power_off=False)
    return ledger_id


def test_a_ledger_is_recovered_and_repaired_as_soon_as_its_writer_was_missing_long_enough() -> None:
    """A worker looks again when the wait is over, not after a pause that has doubled until then:
    where workers often end, a longer wait is cut off again and again.
    """

    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        gone = world.ledger(ledger_id).fragments[0].ensemble[0]
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        await world.wait_for_state(gone, Lifecycle.LOST)
        wait_s = SESSIONS * world.cluster.plan.session_timeout_s
        within_s = LOOK_EVERY_S + wait_s + SOON_S
        assert await world.wait(
            lambda: world.ledger(ledger_id).state is LedgerState.CLOSED, within_s
        )
        assert await world.wait(lambda: not world.is_named(gone), SOON_S)
        check_whole(world, ledger_id)

    play(story, bookies=5)


def test_a_ledger_is_recovered_while_copies_take_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quire.repair.worker.LEDGERS_AT_ONCE", 1)
    monkeypatch.setattr("quire.repair.worker.MORE_AT_ONCE", {})
    halt = Halt("store")

    async def story(world: World) -> None:
        ledger_id = await write_and_die(world)
        gone = world.ledger(ledger_id).fragments[0].ensemble[0]
        await world.write(5)
        closed = [ledger for ledger in world.ledgers() if ledger.state is LedgerState.CLOSED]
        assert any(gone in metadata.fragments[0].ensemble for metadata in closed)
        world.bookie(gone).is_wanted = False
        world.bookie(gone).kill(power_off=True)
        await halt.reached.wait()
        assert await world.wait(lambda: world.ledger(ledger_id).state is LedgerState.CLOSED)
        halt.released.set()
        assert await world.wait(lambda: not world.is_named(gone))

    with at_each_action(halt.at):
        play(story, bookies=5)


@pytest.mark.parametrize("is_partly_lost", [True, False])
def test_a_lost_position_does_not_keep_the_ledger_of_a_dead_writer_open(
    is_partly_lost: bool,
) -> None:
    """The entries of its last fragment have one copy left, and only a recovery helps them."""

    async def story(world: World) -> None:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        more, done = asyncio.Event(), asyncio.Event()

        async def work(_node: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
            writer = await client.create_ledger(Quorum(ensemble=2, write=2, ack=2))
            await writer.append_many([b"%d" % number for number in range(20)])
            ready.set_result(writer.id)
            await more.wait()
            await writer.append_many([b"%d" % number for number in range(20)])
            done.set()
            await asyncio.Event().wait()

        node = ClientNode(world.cluster, "writer", work)
        node.start()
        ledger_id = await ready
        first = world.ledger(ledger_id).fragments[0].ensemble
        end(world, *first)
        more.set()
        await done.wait()
        gone = world.ledger(ledger_id).last_fragment.ensemble[0]
        node.kill(power_off=True)
        end(world, gone)
        if not is_partly_lost:
            start_again(world, *first)
        assert await world.wait(lambda: world.ledger(ledger_id).state is LedgerState.CLOSED)
        assert await world.wait(lambda: gone not in world.ledger(ledger_id).last_fragment.ensemble)

    play(story, bookies=8, lost_after_s=30, urgent_after_s=10)

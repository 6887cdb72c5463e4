"""Repair ends a ledger whose writer ended before its first entry: no bookie knows its key (9.14).

Every part is the production code, on simulated disks, networks and metadata.
"""

import asyncio
import random

import pytest

from bookie.wire.messages import Status
from ledger_client import LedgerClient, LedgerError, Quorum
from ledger_client.ledger_calls import NewLedger
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.repair.lifecycle import Lifecycle
from quire.operate.appends import create_unclaimed_by, writer_claimed_by
from tests.simulation.nodes import ClientNode
from tests.support.repair.late_adds import add_late
from tests.support.repair.repair_world import THREE, World, play
from tests.support.repair.replicas import end, start_again


async def create_and_die(world: World, quorum: Quorum = THREE, *, unclaimed: bool = False) -> int:
    """Create a ledger by a client that ends before its first append."""
    ids: list[int] = []

    async def create(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        if unclaimed:
            services = await client._session.services()
            wanted = NewLedger.of(quorum, None, "crc32c", b"", {})
            ids.append((await create_unclaimed_by(services, wanted)).id)
        else:
            ids.append((await client.create_ledger(quorum)).id)
        await asyncio.Event().wait()

    other = ClientNode(world.cluster, "other", create)
    other.start()
    assert await world.wait(lambda: bool(ids))
    other.is_wanted = False
    other.kill(power_off=True)
    return ids[0]


async def blocked_reason(world: World) -> str:
    """Wait for a blocked job; return its reason."""

    def reasons() -> list[str]:
        return [job.blocked_reason for job in world.jobs.published() if job.blocked_reason]

    assert await world.wait(lambda: bool(reasons()))
    return reasons()[0]


def is_closed_empty(world: World, ledger_id: int) -> bool:
    ledger = world.ledger(ledger_id)
    return (ledger.state, ledger.last_entry_id, ledger.length) == (LedgerState.CLOSED, -1, 0)


def test_it_is_closed_empty_and_leaves_a_lost_bookie() -> None:
    async def story(world: World) -> None:
        ledger_id = await create_and_die(world)
        gone = world.ledger(ledger_id).last_fragment.ensemble[0]
        end(world, gone)
        assert await world.wait(lambda: is_closed_empty(world, ledger_id))
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


def test_it_does_not_block_a_drain() -> None:
    async def story(world: World) -> None:
        ledger_id = await create_and_die(world)
        drained = world.ledger(ledger_id).last_fragment.ensemble[0]
        await world.change(drained, Lifecycle.DRAINING)
        await world.wait_for_state(drained, Lifecycle.DRAINED)
        assert is_closed_empty(world, ledger_id)

    play(story)


def test_without_coverage_it_is_blocked_until_its_owner_recovers_it() -> None:
    async def story(world: World) -> None:
        ledger_id = await create_and_die(world)
        gone = world.ledger(ledger_id).last_fragment.ensemble[:2]
        end(world, *gone)
        reason = await blocked_reason(world)
        assert "no bookie that is left knows its key" in reason
        assert "recover it with its password" in reason
        assert world.ledger(ledger_id).state is LedgerState.IN_RECOVERY
        start_again(world, *gone)
        assert world.client is not None
        info = await world.client.recover_ledger(ledger_id)
        assert info.last_entry_id == -1

    play(story)


def test_an_entry_that_was_not_acknowledged_stays_outside_when_its_bookie_returns() -> None:
    """One member has the key and the first entry, and is lost: no ack quorum had the entry."""

    async def story(world: World) -> None:
        ledger_id = await create_and_die(world)
        ledger = world.ledger(ledger_id)
        lost, *others = ledger.last_fragment.ensemble
        assert await add_late(world, ledger, 0, lost) is Status.OK
        end(world, lost)
        assert await world.wait(lambda: is_closed_empty(world, ledger_id))
        for other in others:
            assert await add_late(world, ledger, 0, other) is Status.FENCED
        start_again(world, lost)
        assert await world.wait(lambda: world.bookie(lost).is_registered)
        await asyncio.sleep(60)
        assert is_closed_empty(world, ledger_id)
        assert world.client is not None
        assert (await world.client.recover_ledger(ledger_id)).last_entry_id == -1

    play(story)


def test_a_key_that_is_found_is_used() -> None:
    """The bookie that knows the key is up: the recovery finds its entry."""

    async def story(world: World) -> None:
        ledger_id = await create_and_die(world)
        ledger = world.ledger(ledger_id)
        holder, gone, _ = ledger.last_fragment.ensemble
        assert await add_late(world, ledger, 0, holder) is Status.OK
        end(world, gone)
        assert await world.wait(lambda: world.ledger(ledger_id).state is LedgerState.CLOSED)
        assert world.ledger(ledger_id).last_entry_id == 0
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


@pytest.mark.parametrize("seed", range(6))
def test_a_recovery_by_the_owner_at_the_same_time_is_not_refused(seed: int) -> None:
    async def story(world: World) -> None:
        ledger_id = await create_and_die(world)
        gone = world.ledger(ledger_id).last_fragment.ensemble[0]
        end(world, gone)
        assert world.client is not None
        has_begun = lambda: world.ledger(ledger_id).state is not LedgerState.OPEN  # noqa: E731
        assert await world.wait(has_begun)
        await asyncio.sleep(0.01 * world.rng.random())
        info = await world.client.recover_ledger(ledger_id)
        assert info.last_entry_id == -1
        assert await world.wait(lambda: not world.is_named(gone))

    play(story, seed=seed)


def test_a_ledger_that_is_not_claimed_moves_and_stays_open() -> None:
    async def story(world: World) -> None:
        ledger_id = await create_and_die(world, unclaimed=True)
        gone = world.ledger(ledger_id).last_fragment.ensemble[0]
        end(world, gone)
        assert await world.wait(lambda: not world.is_named(gone))
        ledger = world.ledger(ledger_id)
        assert (ledger.state, len(ledger.fragments)) == (LedgerState.OPEN, 1)
        assert world.client is not None
        services = await world.client._session.services()
        async with writer_claimed_by(services, LedgerId(ledger_id), b"") as writer:
            assert await writer.append(b"first") == 0
        with pytest.raises(LedgerError):
            async with writer_claimed_by(services, LedgerId(ledger_id), b""):
                pass

    play(story)

"""One broker is the controller at a time, and all brokers learn which one."""

import asyncio
import random

import pytest

from metadata.brokers.election import ControllerElection
from metadata.paths import CONTROLLER
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until


async def elected(store: MemoryMetadataStore, rng: random.Random) -> ControllerElection:
    """Return the election that broker 1 won as the only candidate."""
    election = ControllerElection(store, 1, rng)
    await election.start()
    await until(lambda: election.is_controller)
    return election


async def test_one_of_many_is_elected_and_all_learn_it(
    server: MemoryMetadataServer, rng: random.Random
) -> None:
    stores = [MemoryMetadataStore(server) for _ in range(5)]
    elections = [ControllerElection(store, i, rng) for i, store in enumerate(stores)]
    for election in elections:
        await election.start()
    for _ in range(4):
        await until(
            lambda: (
                len(
                    dict.fromkeys(
                        controller_election.controller_id for controller_election in elections
                    )
                )
                == 1
            )
        )
        await until(lambda: elections[0].controller_id is not None)
        winner = next(
            controller_election
            for controller_election in elections
            if controller_election.is_controller
        )
        assert sum(controller_election.is_controller for controller_election in elections) == 1
        elections.remove(winner)
        await winner.aclose()
        assert not winner.is_controller
        await until(
            lambda: any(controller_election.is_controller for controller_election in elections)
        )
    for election in elections:
        await election.aclose()
    for store in stores:
        await store.aclose()


async def test_a_change_is_reported(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = await elected(store, rng)
    second = ControllerElection(other_store, 2, rng)
    seen: list[tuple[int | None, bool]] = []
    cancel = second.on_change(lambda: seen.append((second.controller_id, second.is_controller)))
    await second.start()
    await until(lambda: second.controller_id == 1)
    await first.aclose()
    await until(lambda: second.is_controller)
    assert seen == [(1, False), (2, True)]
    cancel()
    await second.aclose()
    assert len(seen) == 2


async def test_a_broker_without_its_session_is_not_the_controller(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = await elected(store, rng)
    second = ControllerElection(other_store, 2, rng)
    await second.start()
    await until(lambda: second.controller_id == 1)
    reported: list[bool] = []
    first.on_change(lambda: reported.append(first.is_controller))
    store.suspend()
    assert first.is_controller  # the session may still live
    store.expire()
    assert not first.is_controller
    await until(lambda: reported == [False])
    assert first.controller_id is None
    await until(lambda: second.is_controller)
    store.resume()
    await until(lambda: first.controller_id == 2)
    assert not first.is_controller
    await second.aclose()
    await until(lambda: first.is_controller)
    await first.aclose()


async def test_a_broker_is_elected_again_after_a_broken_session(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    election = await elected(store, rng)
    before = store.session_id
    store.expire()
    assert not election.is_controller
    await until(lambda: election.is_controller)
    assert store.session_id != before
    assert (await store.get(CONTROLLER)).ephemeral
    await election.aclose()


async def test_only_an_own_node_is_removed(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = await elected(store, rng)
    second = ControllerElection(other_store, 2, rng)
    await second.start()
    await until(lambda: second.controller_id == 1)
    await second.aclose()
    assert first.is_controller
    assert (await store.get(CONTROLLER)).ephemeral
    await first.aclose()


@pytest.mark.parametrize("act", ["lost", "dropped", "late", "refused"])
async def test_an_unknown_outcome_is_decided_by_a_new_read(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    faults.acts = [act]
    election = await elected(store, rng)
    await asyncio.sleep(faults.late_s * 2)
    assert election.is_controller
    await election.aclose()


async def test_the_election_waits_for_a_readable_value(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    version = await store.create(CONTROLLER, b"of no broker")
    election = ControllerElection(store, 1, rng)
    await election.start()
    await asyncio.sleep(5)
    assert (election.is_controller, election.controller_id) == (False, None)
    await store.delete(CONTROLLER, version)
    await until(lambda: election.is_controller)
    await election.aclose()

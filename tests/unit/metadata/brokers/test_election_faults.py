"""An election does not depend on the watch, repeats failed reads, and ends completely."""

import asyncio
import random

import msgpack
import pytest
from typing_extensions import override

from metadata.brokers.election import ControllerElection
from metadata.errors import NodeNotFoundError
from metadata.paths import CONTROLLER
from metadata.store.ephemeral import INCARNATION_BYTES, HeldNode, pack_held, unpack_held
from metadata.store.interface import Cancel, SessionCallback, Stored, WatchCallback
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import taken_s
from tests.until import until

FIRST_PAUSE_S_MAX = 0.05
SOON_S = 1.0


class CountingStore(MemoryMetadataStore):
    """Store that counts the callbacks that were not cancelled."""

    callback_count = 0

    @override
    def watch_value(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        return self._counted(super().watch_value(path, callback, holder=holder))

    @override
    def on_session(self, callback: SessionCallback) -> Cancel:
        return self._counted(super().on_session(callback))

    def _counted(self, cancel: Cancel) -> Cancel:
        self.callback_count += 1

        def count_and_cancel() -> None:
            self.callback_count -= 1
            cancel()

        return count_and_cancel


class MovedStore(MemoryMetadataStore):
    """Store whose server does not know yet what the last server applied without an answer."""

    @override
    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        if not fresh:
            raise NodeNotFoundError(path)
        return await super().get(path, fresh=fresh, agreed=agreed)


async def elected(
    store: MemoryMetadataStore, rng: random.Random, broker_id: int = 1
) -> ControllerElection:
    election = ControllerElection(store, broker_id, rng)
    await election.start()
    await until(lambda: election.is_controller)
    return election


async def test_a_broker_is_elected_before_the_watch_calls(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    faults.news_s = 60.0
    election = ControllerElection(store, 1, rng)
    await election.start()
    await asyncio.sleep(SOON_S)
    assert election.is_controller
    session_id = store.session_id
    store.expire()
    await asyncio.sleep(SOON_S)
    assert election.is_controller
    assert store.session_id != session_id
    await election.aclose()


async def test_a_node_of_an_earlier_session_of_this_process_is_replaced(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    faults.news_s = 60.0
    incarnation = random.Random(3).randbytes(INCARNATION_BYTES)
    held = HeldNode(incarnation, 10**6, msgpack.packb([1, 1]))
    await other_store.create(CONTROLLER, pack_held(held), ephemeral=True)
    election = ControllerElection(store, 1, random.Random(3))
    await election.start()
    await asyncio.sleep(SOON_S)
    assert election.is_controller
    stored = await store.get(CONTROLLER)
    assert unpack_held(CONTROLLER, stored.value).session_id == store.session_id
    await other_store.aclose()
    assert await store.get(CONTROLLER), "it belongs to the living session"
    await election.aclose()


async def test_a_short_break_of_the_connection_changes_nothing(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = await elected(store, rng)
    second = ControllerElection(other_store, 2, rng)
    await second.start()
    await until(lambda: second.controller_id == 1)
    reported: list[int | None] = []
    for each in (first, second):
        each.on_change(lambda each=each: reported.append(each.controller_id))  # type: ignore[misc]
    for session in (store, other_store):
        session.suspend()
        await asyncio.sleep(SOON_S)
        assert (first.is_controller, first.controller_id, second.controller_id) == (True, 1, 1)
        session.resume()
        await asyncio.sleep(SOON_S)
    assert reported == []
    await second.aclose()
    await first.aclose()


async def test_a_candidate_knows_the_controller_without_a_session(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = await elected(store, rng)
    second = ControllerElection(other_store, 2, rng)
    await second.start()
    await until(lambda: second.controller_id == 1)
    other_store.suspend()
    other_store.expire()
    await asyncio.sleep(SOON_S)
    assert second.controller_id == 1
    other_store.resume()
    await asyncio.sleep(SOON_S)
    assert second.controller_id == 1
    await second.aclose()
    await first.aclose()


async def test_broker_0_can_be_the_controller(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = await elected(store, rng, broker_id=0)
    second = ControllerElection(other_store, 2, rng)
    await second.start()
    await until(lambda: second.controller_id == 0)
    await second.aclose()
    await first.aclose()


@pytest.mark.parametrize("broker_id", [-1, 2**40, "text"])
async def test_the_election_waits_for_a_possible_broker(
    store: MemoryMetadataStore, rng: random.Random, broker_id: object
) -> None:
    known, unknown = [
        pack_held(HeldNode(bytes(INCARNATION_BYTES), 5, msgpack.packb([1, each])))
        for each in (7, broker_id)
    ]
    version = await store.create(CONTROLLER, known)
    election = ControllerElection(store, 1, rng)
    await election.start()
    await until(lambda: election.controller_id == 7)
    version = await store.compare_and_set(CONTROLLER, unknown, version)
    await asyncio.sleep(5.0)
    assert (election.is_controller, election.controller_id) == (False, 7)
    await store.delete(CONTROLLER, version)
    await until(lambda: election.is_controller)
    await election.aclose()


async def test_a_read_that_fails_is_repeated_after_a_pause(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
) -> None:
    session_id = store.session_id
    faults.meets = lambda call: (call.operation, call.session_id) == ("get", session_id)
    faults.refusals = 7
    election = ControllerElection(store, 1, rng)
    await election.start()
    await until(lambda: election.is_controller)
    begun_s, last_s = faults.times[0], faults.times[-1]
    assert last_s - begun_s > 20 * FIRST_PAUSE_S_MAX
    faults.times.clear()
    faults.refusals = 1
    await other_store.delete(CONTROLLER, (await other_store.get(CONTROLLER)).version)
    await asyncio.sleep(10.0)
    failed, repeated = faults.times[:2]
    assert repeated - failed < FIRST_PAUSE_S_MAX, "pauses begin again after a success"
    assert election.is_controller
    await election.aclose()


async def test_nothing_is_left_after_the_end(
    server: MemoryMetadataServer, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    store = CountingStore(server)
    running = len(asyncio.all_tasks())
    election = await elected(store, rng)
    assert store.callback_count == 2
    await election.aclose()
    assert (store.callback_count, len(asyncio.all_tasks())) == (0, running)
    second = await elected(other_store, rng)
    assert not election.is_controller
    await second.aclose()
    await store.aclose()


async def test_a_node_whose_creation_was_not_answered_is_removed_at_the_end(
    server: MemoryMetadataServer, faults: ScriptedFaults, rng: random.Random
) -> None:
    store = MovedStore(server)
    faults.acts = ["lost"]
    election = ControllerElection(store, 1, rng)
    await election.start()
    await until(lambda: faults.acts == [])
    await election.aclose()
    with pytest.raises(NodeNotFoundError):
        await store.get(CONTROLLER, fresh=True)
    await store.aclose()


async def test_an_election_ends_with_its_store(
    server: MemoryMetadataServer, rng: random.Random
) -> None:
    store = MemoryMetadataStore(server)
    store.suspend()
    running = len(asyncio.all_tasks())
    election = ControllerElection(store, 1, rng)
    await election.start()
    await asyncio.sleep(0.1)
    await store.aclose()
    await asyncio.sleep(10.0)
    assert len(asyncio.all_tasks()) == running
    await election.aclose()


async def test_a_candidacy_that_did_not_start_ends_at_once(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    store.suspend()
    assert await taken_s(ControllerElection(store, 1, rng).aclose()) == 0.0

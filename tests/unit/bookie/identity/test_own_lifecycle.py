"""A bookie follows its own record: draining after a grace time, drained, in use again, removed."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from bookie.errors import BookieRemovedError
from bookie.identity.own_lifecycle import OwnLifecycle, refuse_removed
from bookie.storage.writability import Reason, Writability
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LIFECYCLE_KIND, LifecycleStore
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from quire.server.server_log import ServerLog
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.metadata.scripted_faults import ScriptedFaults

SELF = BookieId("bookie-a")
GRACE_S = 20.0
SOON_S = 3.0


class World:
    """One bookie's conditions, and the operator who changes its record."""

    def __init__(self) -> None:
        self.outage = ScriptedFaults(lambda call: call.session_id == self.store.session_id)
        server = MemoryMetadataServer(self.outage)
        self.store = MemoryMetadataStore(server)
        self.operator = LifecycleStore(MemoryMetadataStore(server), Random(1))
        loop = simulation_loop()
        self.writability = Writability(loop.time)
        self.seen: list[tuple[bool, bool]] = []
        """At each change: whether the bookie is offered, and whether it is writable."""
        self.writability.on_change(
            lambda _: self.seen.append((self.writability.is_offered, self.writability.is_writable))
        )
        self.own = OwnLifecycle(self.store, Random(2), SELF, self.writability, ServerLog(loop.time))
        self.task: asyncio.Task[None] | None = None

    async def change(self, *states: Lifecycle, reason: str = "new disks") -> None:
        for state in states:
            await self.operator.change(SELF, state, reason, 7)

    async def start(self) -> None:
        await self.own.restore()
        self.task = asyncio.create_task(self.own.run(GRACE_S))

    def state(self) -> tuple[bool, bool, bool]:
        """Return whether it is offered, writable, and takes recovery adds."""
        now = self.writability
        return now.is_offered, now.is_writable, now.takes_recovery_adds

    def reasons(self) -> list[Reason]:
        return [condition.reason for condition in self.writability.conditions()]


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await scenario(world)
        finally:
            await cancel_and_wait(world.task)
            await world.store.aclose()

    run_simulation(main, 1, until_s=3600)


def test_a_bookie_without_a_record_is_used() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        await asyncio.sleep(2 * GRACE_S)
        assert world.state() == (True, True, True)
        assert world.seen == []

    run(scenario)


def test_a_draining_bookie_is_not_offered_at_once_and_refuses_adds_later() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, True, True)
        assert world.writability.features() == ("condition:draining",)
        (condition,) = world.writability.conditions()
        assert condition.text == "an operator drains it: new disks"
        await asyncio.sleep(GRACE_S - SOON_S - 0.5)
        assert world.state() == (False, True, True)
        await asyncio.sleep(1.0)
        assert world.state() == (False, False, True)
        (later,) = world.writability.conditions()
        assert (later.reason, later.since_s) == (condition.reason, condition.since_s)
        assert world.seen == [(False, True), (False, False)], "never offered in between"

    run(scenario)


def test_a_start_that_finds_the_bookie_draining_has_no_grace_time() -> None:
    async def scenario(world: World) -> None:
        await world.change(Lifecycle.DRAINING)
        await world.start()
        assert world.state() == (False, False, True)
        await asyncio.sleep(2 * GRACE_S)
        assert world.state() == (False, False, True)
        assert len(world.seen) == 1

    run(scenario)


def test_a_bookie_in_limbo_drains_without_an_operator() -> None:
    """Rule 9.13."""

    async def scenario(world: World) -> None:
        await world.start()
        await world.change(Lifecycle.LIMBO, reason="data may be lost")
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, True, True)
        assert world.writability.features() == ("condition:draining",)
        (condition,) = world.writability.conditions()
        expected = "its copies are not proven, and are moved: data may be lost"
        assert condition.text == expected
        await asyncio.sleep(GRACE_S)
        assert world.state() == (False, False, True)
        await world.change(Lifecycle.DRAINED)
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, False, False)

    run(scenario)


@pytest.mark.parametrize("is_restart", [False, True])
def test_a_drained_bookie_refuses_recovery_adds_too(*, is_restart: bool) -> None:
    async def scenario(world: World) -> None:
        if not is_restart:
            await world.start()
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(SOON_S)
        await world.change(Lifecycle.DRAINED)
        if is_restart:
            await world.start()
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, False, False)
        assert world.reasons() == [Reason.DRAINED]
        assert (True, True) not in world.seen
        await asyncio.sleep(2 * GRACE_S)
        assert world.reasons() == [Reason.DRAINED], "the grace time has no effect any more"

    run(scenario)


@pytest.mark.parametrize("after_s", [SOON_S, 2 * GRACE_S])
def test_a_bookie_that_is_not_drained_after_all_is_used_again(after_s: float) -> None:
    async def scenario(world: World) -> None:
        await world.start()
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(after_s)
        await world.change(Lifecycle.ACTIVE)
        await asyncio.sleep(SOON_S)
        assert world.state() == (True, True, True)
        await asyncio.sleep(GRACE_S)
        assert world.state() == (True, True, True)
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, True, True), "a new grace time"

    run(scenario)


def test_other_reasons_stay_when_draining_ends() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        world.writability.set_by_operator(is_read_only=True)
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, False, True)
        await world.change(Lifecycle.ACTIVE)
        await asyncio.sleep(SOON_S)
        assert world.reasons() == [Reason.OPERATOR]
        assert world.state() == (False, False, True)

    run(scenario)


def test_a_lost_bookie_that_is_back_is_used() -> None:
    async def scenario(world: World) -> None:
        await world.change(Lifecycle.LOST)
        await world.start()
        assert world.state() == (True, True, True)
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, True, True)

    run(scenario)


def test_a_removed_bookie_ends_and_does_not_start_again() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        await refuse_removed(world.store, SELF)
        await world.change(Lifecycle.DRAINING, Lifecycle.DRAINED, Lifecycle.REMOVED)
        assert world.task is not None
        with pytest.raises(BookieRemovedError, match="new disks") as raised:
            await world.task
        assert raised.value.bookie_id == SELF
        assert "quire bookie format" in str(raised.value)
        for start in (world.own.restore(), refuse_removed(world.store, SELF)):
            with pytest.raises(BookieRemovedError):
                await start

    run(scenario)


def test_an_outage_changes_nothing_and_the_record_is_read_after_it() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(SOON_S)
        world.outage.is_away = True
        await world.change(Lifecycle.DRAINED)
        await asyncio.sleep(2 * GRACE_S)
        assert world.reasons() == [Reason.DRAINING]
        assert world.state() == (False, False, True), "the grace time ends in an outage too"
        world.outage.is_away = False
        await asyncio.sleep(SOON_S)
        assert world.reasons() == [Reason.DRAINED]

    run(scenario)


def test_a_record_of_a_later_release_changes_nothing_while_running() -> None:
    async def scenario(world: World) -> None:
        await world.start()
        await world.change(Lifecycle.DRAINING)
        await asyncio.sleep(2 * GRACE_S)
        path = LIFECYCLE_KIND.path(SELF)
        version = (await world.store.get(path, fresh=True)).version
        await world.store.compare_and_set(path, b"\x91\x63", version)
        await asyncio.sleep(SOON_S)
        assert world.state() == (False, False, True)
        with pytest.raises(MetadataFormatError):
            await refuse_removed(world.store, SELF)

    run(scenario)

"""Which answers give the LAC, and when the read of it ends (rules 3.2, 8.1 and 8.5)."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from bookie.wire.messages import Status
from ledger_client.bookies.pool import CallFailure
from ledger_client.errors import QuorumTimeoutError, UnauthorizedError
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.tailing import read_lac
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.ledger_world import LEDGER, payloads
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world

TIMEOUT_S = 10.0


def run(scenario: Callable[[World, FollowedLedger], Awaitable[None]]) -> None:
    """Run a scenario with entries 0 to 9 on a, b and c, which have the LACs 3, 9 and 9."""

    async def main(world: World) -> None:
        world.bookies.write(0, payloads(0, 10), lac=-1, length_before=0, to="a,b,c")
        for name, lac in (("a", 3), ("b", 9), ("c", 9)):
            world.bookies[name].advance(lac)
        ledger = FollowedLedger(world.metadata, world.version, world.ledgers, Random(2))
        tasks = asyncio.all_tasks()
        await scenario(world, ledger)
        assert asyncio.all_tasks() == tasks, "no request is left"
        assert not any(bookie.is_fenced for bookie in world.bookies.bookies.values())

    run_world(main)


def test_requests_that_are_not_needed_any_more_end() -> None:
    async def scenario(world: World, ledger: FollowedLedger) -> None:
        world.bookies["c"].delay_s = 5.0
        await read_lac(ledger, world.bookies.pool, TIMEOUT_S)
        assert ledger.last_confirmed == 9
        assert simulation_loop().time() < 1.0

    run(scenario)


@pytest.mark.parametrize("failure", [CallFailure.LOST, CallFailure.TIMEOUT])
def test_bookies_that_failed_give_no_answer(failure: CallFailure) -> None:
    """One answer of three does not cover, so every bookie is waited for."""

    async def scenario(world: World, ledger: FollowedLedger) -> None:
        world.bookies["a"].failure = world.bookies["b"].failure = failure
        world.bookies["c"].delay_s = 4.0
        await read_lac(ledger, world.bookies.pool, TIMEOUT_S)
        assert ledger.last_confirmed == 9

    run(scenario)


def test_one_answer_is_enough_where_no_other_comes() -> None:
    async def scenario(world: World, ledger: FollowedLedger) -> None:
        world.bookies["b"].failure = world.bookies["c"].failure = CallFailure.LOST
        await read_lac(ledger, world.bookies.pool, TIMEOUT_S)
        assert ledger.last_confirmed == 3

    run(scenario)


def test_without_an_answer_the_reasons_are_named() -> None:
    async def scenario(world: World, ledger: FollowedLedger) -> None:
        for name in "ab":
            world.bookies[name].failure = CallFailure.LOST
        world.bookies["c"].is_limbo = True
        world.bookies["c"].delay_s = 1.0
        wanted = r"as the test wants; .*as the test wants; c answered UNKNOWN"
        with pytest.raises(QuorumTimeoutError, match=wanted) as it:
            await read_lac(ledger, world.bookies.pool, TIMEOUT_S)
        assert (it.value.ledger_id, it.value.outcome) == (LEDGER, "not_written")
        assert ledger.last_confirmed == -1

    run(scenario)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_refused_password_is_an_error(name: str) -> None:
    async def scenario(world: World, ledger: FollowedLedger) -> None:
        world.bookies[name].refuses_lac = Status.UNAUTHORIZED
        for other in "abc":
            world.bookies[other].delay_s = 0.1 if other == name else 1.0
        with pytest.raises(UnauthorizedError, match=f"bookie {name} refused the password") as it:
            await read_lac(ledger, world.bookies.pool, TIMEOUT_S)
        assert it.value.ledger_id == LEDGER

    run(scenario)


def test_a_bookie_without_the_ledger_answers_and_gives_no_lac() -> None:
    async def scenario(world: World, ledger: FollowedLedger) -> None:
        for name in "bc":
            world.bookies[name].entries.clear()
        world.bookies["a"].delay_s = 5.0
        await read_lac(ledger, world.bookies.pool, TIMEOUT_S)
        assert ledger.last_confirmed == -1
        assert simulation_loop().time() < 1.0

    run(scenario)

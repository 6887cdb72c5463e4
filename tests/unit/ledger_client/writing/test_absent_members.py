"""Which members of an in-sync ledger count as absent, in virtual time (rule 11.3)."""

import asyncio

import pytest

from bookie.wire.messages import Status
from ledger_client import ClientConfig
from metadata.ids import BookieId
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.writer_world import World, run
from tests.support.metadata.scripted_faults import ScriptedFaults, is_write

SLOW_S = 500.0
A, B, C, D = map(BookieId, "abcd")


def make_slow(world: World, names: str) -> None:
    for name in names:
        world.bookies[name].delay_s = SLOW_S


def pinged_after(world: World, time_s: float) -> set[str]:
    return {name for at_s, name in world.bookies.pings if at_s > time_s}


def test_the_member_that_left_last_is_the_absent_one() -> None:
    """An earlier one has been replaced."""

    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("b")
        await world.check_until(lambda: world.in_sync == "acd", 20.0)
        await world.lose("a")
        now = simulation_loop().time()
        world.bookies.fail("b", None)
        await world.check_for(3.0)
        assert "a" in pinged_after(world, now)
        assert sorted(world.ensemble) == ["c", "d"], "b answered an older ping, and has no place"

    run(scenario, spares="d", config=ClientConfig(spare_after_s=5.0))


def test_no_former_member_is_contacted_while_a_spare_catches_up() -> None:
    async def scenario(world: World) -> None:
        for name in "ab":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_until(lambda: world.ensemble == "abd", 20.0)
        now = simulation_loop().time()
        world.bookies.fail("c", None)
        await world.check_for(10.0)
        assert (pinged_after(world, now + 1.0), world.in_sync) == (set(), "ab")

    run(scenario, spares="d", config=ClientConfig(spare_after_s=5.0, read_timeout_s=0.5))


@pytest.mark.parametrize("is_refusing", [False, True])
def test_a_spare_that_was_lost_is_the_absent_member(*, is_refusing: bool) -> None:
    """Also before it has caught up. The member that it replaced is not contacted."""

    async def scenario(world: World) -> None:
        for name in "abc":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_until(lambda: world.ensemble == "abd", 20.0)
        world.bookies.fail("c", None)
        await world.check_for(3.0)
        await world.lose("d")
        await world.check_until(lambda: world.ensemble == "ab", 3.0)
        if is_refusing:
            await world.lose("b")
            assert world.shell.protocol.lacks_in_sync
        now = simulation_loop().time()
        await world.check_for(3.0)
        assert pinged_after(world, now) == {"d"}
        assert world.ensemble == "ab"

    run(scenario, spares="d", config=ClientConfig(spare_after_s=5.0, read_timeout_s=0.5))


def test_a_member_that_is_back_takes_its_place_again_while_appends_are_refused() -> None:
    """The spare in its place has not caught up."""

    async def scenario(world: World) -> None:
        for name in "abc":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("b")
        await world.check_until(lambda: world.ensemble == "adc", 20.0)
        await world.check_for(3.0)
        assert world.shell.protocol.lacks_in_sync
        world.bookies.fail("b", None)
        await world.check_until(lambda: world.in_sync == "abc", 8.0)
        assert world.lac == 3

    run(scenario, minimum=3, spares="d", config=ClientConfig(read_timeout_s=0.5))


def test_a_lagging_member_that_cannot_leave_keeps_the_ledger_in_check() -> None:
    async def scenario(world: World) -> None:
        world.append()
        await asyncio.sleep(1.0)
        assert world.check() is None
        make_slow(world, "c")
        world.append()
        await world.check_for(12.0)
        assert (world.ensemble, world.in_sync) == ("abc", "ab")
        assert world.check() is not None

    run(scenario, minimum=3, lag_max_s=10.0)


def test_an_absence_counts_from_the_first_check_after_it() -> None:
    """That one need not be due."""

    async def scenario(world: World) -> None:
        world.check()
        world.append()
        world.bookies.fail("c")
        await asyncio.sleep(0.1)
        assert world.ensemble == "ab"
        world.members.check(0.125)
        world.members.check(4.0)
        world.members.check(8.125)
        await asyncio.sleep(0.1)
        assert world.ensemble == "abd"

    run(scenario, spares="d", config=ClientConfig(spare_after_s=8.0))


def test_a_spare_that_need_not_be_waited_for_joins_only_for_an_absent_member() -> None:
    async def scenario(world: World) -> None:
        for name in "ab":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_until(lambda: world.ensemble == "abd", 5.0)
        await world.check_for(5.0)
        assert world.ensemble == "abd"

    run(scenario, spares="de", config=ClientConfig(spare_after_s=0.0, read_timeout_s=0.5))


def test_a_ledger_whose_member_is_about_to_leave_stays_in_check() -> None:
    async def scenario(world: World) -> None:
        world.append()
        await asyncio.sleep(1.0)
        assert world.check() is None
        world.server.faults = ScriptedFaults(is_write, answer_s=3.0)
        await world.lose("c")
        assert (world.ensemble, world.in_sync) == ("abc", "ab")
        assert world.check() is not None

    run(scenario)


# -- spares ----------------------------------------------------------------------------------------


def test_the_placement_learns_who_is_away_and_who_fences_the_ledger() -> None:
    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        world.bookies["c"].is_fenced = True
        world.append()
        await world.check_until(lambda: world.ensemble == "ab", 5.0)
        await world.check_until(lambda: world.in_sync == "abd", 20.0)
        assert world.policy.given[-1] == ("abc", {C: "it fences the ledger"})

    run(scenario, spares="d", config=ClientConfig(spare_after_s=5.0))


def test_the_placement_gets_each_member_once() -> None:
    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("b")
        await world.check_until(lambda: world.ensemble == "adc", 20.0)
        assert world.policy.given[-1] == ("abc", {B: "it is away"})

    run(scenario, minimum=3, spares="d")


def test_members_that_are_there_do_not_count_as_away_while_appends_are_refused() -> None:
    """One that fails soon afterwards is waited for as long as any other."""

    async def scenario(world: World) -> None:
        for name in "abc":
            world.bookies[name].refuses_reads = Status.UNKNOWN
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("b")
        await world.check_until(lambda: world.ensemble == "adc", 20.0)
        await world.check_for(3.0)
        world.bookies.fail("b", None)
        await world.check_until(lambda: world.in_sync == "abc", 8.0)
        await world.lose("a")
        lost_s = simulation_loop().time()
        await world.check_until(lambda: "a" not in world.ensemble, 20.0)
        assert simulation_loop().time() - lost_s > 9.8

    run(scenario, minimum=3, spares="d", config=ClientConfig(read_timeout_s=0.5))


def test_a_member_that_came_back_and_stayed_is_contacted_at_once_when_it_leaves_again() -> None:
    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("a")
        await world.lose("c")
        await world.check_for(3.0)
        world.bookies.fail("c", None)
        await world.check_until(lambda: world.in_sync == "bc", 8.0)
        await world.check_for(40.0)
        await world.lose("c")
        now = simulation_loop().time()
        await world.check_for(1.6)
        assert "c" in pinged_after(world, now)

    run(scenario, minimum=1)


def test_a_member_that_stayed_in_a_whole_ledger_starts_afresh_when_it_leaves_again() -> None:
    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_for(3.0)
        world.bookies.fail("c", None)
        await world.check_until(lambda: world.in_sync == "abc", 8.0)
        await world.check_for(40.0)
        await world.lose("c")
        now = simulation_loop().time()
        await world.check_for(1.6)
        assert "c" in pinged_after(world, now)
        await world.check_for(5.0)
        assert world.ensemble == "ab", "it is waited for"
        await world.check_until(lambda: world.in_sync == "abd", 10.0)

    run(scenario, spares="d", config=ClientConfig(spare_after_s=10.0))

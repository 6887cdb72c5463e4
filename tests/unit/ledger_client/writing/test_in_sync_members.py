"""When members of an in-sync ledger leave, come back and are replaced, in virtual time (rule
11.3).
"""

import asyncio
from itertools import pairwise

import pytest

from ledger_client import ClientConfig
from ledger_client.bookies.pool import CallFailure
from ledger_client.protocol import append_events as e
from ledger_client.writing.in_sync_members import (
    LOOK_JITTER_S,
    LOOK_PERIOD_S,
    SPARE_WHILE_REFUSING_S,
)
from metadata.ids import BookieId
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.writer_world import CHECK_PERIOD_S, World, run

SLOW_S = 500.0
A, B, C, D = map(BookieId, "abcd")


def make_slow(world: World, names: str) -> None:
    for name in names:
        world.bookies[name].delay_s = SLOW_S


# -- lag -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("messages_max", [None, 100])
def test_a_member_lags_if_it_lacks_an_entry_for_too_long(messages_max: int | None) -> None:
    async def scenario(world: World) -> None:
        world.check()
        world.append()
        await asyncio.sleep(0.1)
        make_slow(world, "c")
        await asyncio.sleep(0.9)
        world.append()
        await asyncio.sleep(0.1)
        for late_s in (0.5, 10.0):
            world.members.check(1.0 + late_s)
            assert world.in_sync == "abc"
        world.members.check(11.0005)
        assert world.in_sync == "ab"
        await asyncio.sleep(1.0)
        assert (world.ensemble, world.lac) == ("ab", 1)

    config = ClientConfig(spare_after_s=1000.0, replica_lag_messages_max=messages_max)
    run(scenario, lag_max_s=10.0, config=config)


@pytest.mark.parametrize("is_steady", [False, True])
def test_lag_is_found_whether_members_are_missing_or_not(*, is_steady: bool) -> None:
    async def scenario(world: World) -> None:
        world.append()
        await asyncio.sleep(1.0)
        if is_steady:
            assert world.check() is None
        else:
            await world.lose("c")
            assert world.check() is not None
        make_slow(world, "b")
        world.append()
        await world.check_for(12.0)
        assert world.in_sync == ("ac" if is_steady else "a")

    run(scenario, minimum=1, lag_max_s=10.0)


def test_a_member_lags_if_it_lacks_too_many_entries() -> None:
    async def scenario(world: World) -> None:
        make_slow(world, "c")
        for _ in range(3):
            world.append()
        await world.check_for(5.0)
        assert world.in_sync == "abc"
        world.append()
        world.check()
        assert world.in_sync == "ab"
        await world.check_for(1.0)
        assert (world.ensemble, world.lac) == ("ab", 3)

    run(scenario, config=ClientConfig(spare_after_s=1000.0, replica_lag_messages_max=3))


def test_without_unconfirmed_entries_no_member_lags() -> None:
    async def scenario(world: World) -> None:
        await world.check_for(20.0)
        world.append()
        await world.check_for(20.0)
        assert world.in_sync == "abc"

    for messages_max in (None, 1):
        config = ClientConfig(spare_after_s=1000.0, replica_lag_messages_max=messages_max)
        run(scenario, lag_max_s=1.0, config=config)


def test_a_member_that_joined_lately_does_not_lag_by_older_entries() -> None:
    async def scenario(world: World) -> None:
        make_slow(world, "b")
        await world.lose("c")
        world.check()
        assert world.ensemble == "ab"
        await world.check_for(5.0)
        world.bookies.fail("c", None)
        world.bookies["c"].add_s = SLOW_S  # it answers no entry, also none from before it joined
        joined_s = await world.check_until(lambda: world.ensemble == "abc", 4.0)
        world.append()
        await world.check_until(lambda: "b" not in world.ensemble, 6.0)
        left_s = simulation_loop().time()
        assert 10.0 < left_s < 11.0
        assert "c" in world.ensemble
        await world.check_until(lambda: "c" not in world.ensemble, 20.0)
        assert simulation_loop().time() >= joined_s + 10.0

    run(scenario, minimum=1, lag_max_s=10.0)


# -- checks ----------------------------------------------------------------------------------------


def test_a_whole_ledger_needs_no_further_check() -> None:
    async def scenario(world: World) -> None:
        world.append()
        await world.check_for(3.0)
        assert {due for _, due in world.dues} == {None}
        assert world.bookies.pings == []

    run(scenario)


def test_a_ledger_without_a_member_is_looked_at_about_once_a_second() -> None:
    async def scenario(world: World) -> None:
        world.append()
        await asyncio.sleep(1.0)
        assert world.check() is None
        await world.lose("c")
        await world.check_for(60.0)
        dues = [(now, due) for now, due in world.dues[1:] if due is not None]
        assert len(dues) == len(world.dues) - 1
        assert all(now <= due <= now + LOOK_PERIOD_S + LOOK_JITTER_S for now, due in dues)
        looks = sorted({due for _, due in dues})
        gaps = [after - before for before, after in pairwise(looks)]
        least, most = LOOK_PERIOD_S, LOOK_PERIOD_S + LOOK_JITTER_S + CHECK_PERIOD_S
        assert all(least <= gap <= most for gap in gaps)
        assert len(set(gaps)) > len(gaps) / 2, "the times spread"

    run(scenario)


def test_the_first_check_of_a_ledger_that_lacks_a_member_contacts_it() -> None:
    async def scenario(world: World) -> None:
        await world.lose("c")
        now = simulation_loop().time()
        world.check()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.bookies.pings == [(now, "c")]

    run(scenario)


def test_a_member_of_a_whole_ledger_is_contacted_at_the_first_check_after_it_left() -> None:
    """Checks of a whole ledger do not put it off."""

    async def scenario(world: World) -> None:
        world.append()
        await world.check_for(5.0)
        await world.lose("c")
        now = simulation_loop().time()
        world.check()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.bookies.pings == [(now, "c")]

    run(scenario)


def test_a_check_at_the_exact_time_looks() -> None:
    async def scenario(world: World) -> None:
        await world.lose("c")
        due = world.check()
        assert due is not None
        assert world.members.check(due - 0.001) == due
        later = world.members.check(due)
        assert later is not None
        assert later >= due + LOOK_PERIOD_S

    run(scenario)


@pytest.mark.parametrize("is_steady", [False, True])
def test_a_member_that_cannot_leave_is_left_to_the_watch_of_its_writer(*, is_steady: bool) -> None:
    """Appends wait for it."""

    async def scenario(world: World) -> None:
        world.append()
        await asyncio.sleep(1.0)
        if is_steady:
            world.check()
        await world.lose("c")
        assert (world.ensemble, world.in_sync, list(world.shell.protocol.parked)) == (
            "abc",
            "ab",
            [C],
        )
        await world.check_for(3.0)
        assert {name for _, name in world.bookies.pings} == set()
        assert all(due is not None for now, due in world.dues if now > 1.1)

    run(scenario, minimum=3)


# -- absent members --------------------------------------------------------------------------------


def test_a_member_that_is_back_joins_and_catches_up() -> None:
    async def scenario(world: World) -> None:
        world.append(5)
        await asyncio.sleep(1.0)
        await world.lose("c")
        assert (world.ensemble, world.in_sync, world.lac) == ("ab", "ab", 5)
        await world.check_for(5.0)
        assert (world.ensemble, world.in_sync) == ("ab", "ab")
        world.bookies.fail("c", None)
        await world.check_until(lambda: world.in_sync == "abc", 3.0)
        assert world.held("c") == list(range(6))
        world.append()
        await world.check_for(1.0)
        assert (world.lac, world.dues[-1][1]) == (6, None)

    run(scenario)


def test_two_absent_members_come_back() -> None:
    async def scenario(world: World) -> None:
        world.append(5)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_for(2.0)
        await world.lose("a")
        await world.check_for(2.0)
        assert world.ensemble == "b"
        world.bookies.fail("ac", None)
        await world.check_until(lambda: world.in_sync == "abc", 10.0)

    run(scenario, minimum=1)


def test_members_that_left_before_the_first_entry_come_back() -> None:
    async def scenario(world: World) -> None:
        world.bookies.fail("c")
        failed = e.BookieFailed(C, e.FailureKind.GONE, "its registration is gone")
        world.shell.dispatch(failed)
        await world.check_for(3.0)
        assert world.ensemble == "ab"
        assert [f.ensemble for f in world.metadata.fragments] == [(A, B)]
        world.bookies.fail("c", None)
        await world.check_until(lambda: world.in_sync == "abc", 5.0)

    run(scenario)


@pytest.mark.parametrize("spare_after_s", [20.0, 5.0])
def test_a_spare_replaces_a_member_that_is_away_for_long(spare_after_s: float) -> None:
    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("c")
        lost_s = simulation_loop().time()
        joined_s = await world.check_until(lambda: "d" in world.ensemble, 60.0)
        assert spare_after_s <= joined_s - lost_s <= spare_after_s + 2.0
        await world.check_until(lambda: world.in_sync == "abd", 5.0)
        assert world.ensemble == "abd"
        world.bookies.fail("c", None)
        await world.check_for(10.0)
        assert world.ensemble == "abd"

    run(scenario, spares="d", config=ClientConfig(spare_after_s=spare_after_s))


def test_without_a_spare_the_member_stays_away() -> None:
    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("c")
        await world.check_for(30.0)
        assert world.ensemble == "ab"

    run(scenario, config=ClientConfig(spare_after_s=5.0))


def test_no_spare_is_taken_while_every_member_is_there() -> None:
    async def scenario(world: World) -> None:
        await world.lose("c")
        await world.check_for(3.0)
        world.bookies.fail("c", None)
        await world.check_until(lambda: world.in_sync == "abc", 5.0)
        await world.check_for(30.0)
        assert world.ensemble == "abc"

    run(scenario, spares="de", config=ClientConfig(spare_after_s=5.0))


@pytest.mark.parametrize(
    ("spare_after_s", "taken_after_s"), [(1000.0, SPARE_WHILE_REFUSING_S), (3.0, 3.0)]
)
def test_a_spare_is_taken_soon_while_appends_are_refused(
    spare_after_s: float, taken_after_s: float
) -> None:
    """It takes the position of the member that cannot leave."""

    async def scenario(world: World) -> None:
        world.append(3)
        await asyncio.sleep(1.0)
        await world.lose("b")
        lost_s = simulation_loop().time()
        assert world.shell.protocol.lacks_in_sync
        await world.check_until(lambda: "d" in world.ensemble, 30.0)
        taken_s = simulation_loop().time() - lost_s
        assert taken_after_s <= taken_s <= taken_after_s + 2.0
        await world.check_until(lambda: len(world.in_sync) == 3, 30.0)
        assert sorted(world.ensemble) == ["a", "c", "d"]
        assert world.lac == 3

    run(scenario, minimum=3, spares="d", config=ClientConfig(spare_after_s=spare_after_s))


def test_nothing_joins_after_the_end() -> None:
    async def scenario(world: World) -> None:
        await world.lose("c")
        await world.check_for(3.0)
        world.bookies.fail("c", None)
        await world.members.aclose()
        await asyncio.sleep(5.0)
        assert world.ensemble == "ab"
        assert ("c" in {name for _, name in world.bookies.pings}) is True

    run(scenario)


def test_a_silent_member_is_contacted_with_a_limit() -> None:
    async def scenario(world: World) -> None:
        await world.lose("c")
        world.bookies.fail("c", CallFailure.TIMEOUT)
        await world.check_for(60.0)
        assert 2 < len(world.bookies.pings) < 62

    run(scenario)

"""Tests of the partitions that a group's members certainly hold, and of checks based on that."""

import pytest

from tests.simulation.topics.holding import FASTEST_RATE, Holdings, Membership

GROUP = "workers"
FIRST, SECOND = "broker-0", "broker-1"
SESSION_S, REBALANCE_S = 4.0, 6.0


class World:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.reports: list[str] = []
        self.holdings = Holdings(lambda kind, _: self.reports.append(kind), lambda: self.now_s)
        self.holdings.note_load(GROUP, FIRST, 1)

    def member(self, name: str, *, is_classic: bool = False) -> Membership:
        member = Membership(name, SESSION_S, REBALANCE_S, is_classic)
        return self.holdings.enter(GROUP, member)

    def given(self, member: Membership, *partitions: int, host: str = FIRST) -> None:
        self.holdings.note_answered(GROUP, member, host, self.now_s, partitions)

    def synced(self, member: Membership, generation: int, tag: str, *partitions: int) -> None:
        before = self.holdings.group(GROUP).generation
        member.epoch = generation
        self.holdings.note_synced(GROUP, member, before, tag, partitions)


@pytest.fixture
def world() -> World:
    return World()


def test_a_partition_is_one_members_until_its_session_is_over(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0, 1)
    world.now_s = SESSION_S - 0.1
    world.given(second, 2)
    assert world.reports == []
    world.given(second, 1, 2)
    assert world.reports == ["two owners"]


def test_a_member_that_is_silent_loses_its_partitions(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0)
    world.now_s = SESSION_S
    world.given(second, 0)
    assert world.reports == []


def test_a_coordinators_clock_may_be_fast(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0)
    world.now_s = SESSION_S / FASTEST_RATE
    world.given(second, 0)
    assert world.reports == []


def test_what_was_given_back_is_free(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0, 1)
    world.given(first, 0)
    assert list(first.held) == [0, 1], "told to give it back, it has not yet"
    world.holdings.give_back(first, [1])
    world.given(second, 1)
    assert world.reports == []


def test_a_member_has_the_time_of_a_rebalance_to_release(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0, 1)
    for _ in range(3):
        world.now_s += 2.0
        world.given(first, 0)
    world.given(second, 1)
    assert world.reports == [], f"{REBALANCE_S} s have passed since it was to keep it"


def test_a_new_coordinator_gives_every_member_a_complete_session(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0)
    world.now_s = SESSION_S - 1
    world.holdings.note_load(GROUP, SECOND, 2)
    world.now_s += SESSION_S - 0.1
    world.given(second, 0, host=SECOND)
    assert world.reports == ["two owners"]


def test_a_silent_member_may_be_removed_before_the_next_coordinator(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0)
    world.now_s = SESSION_S
    world.holdings.note_load(GROUP, SECOND, 2)
    world.given(second, 0, host=SECOND)
    assert world.reports == []


def test_a_coordinator_that_was_replaced_is_not_judged(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.holdings.note_load(GROUP, SECOND, 2)
    world.given(first, 0, host=SECOND)
    world.given(second, 0, host=FIRST)
    assert world.reports == []


def test_a_generation_has_one_assignment(world: World) -> None:
    first, second = (world.member(name, is_classic=True) for name in ("first", "second"))
    world.synced(first, 3, "a", 0, 1)
    world.synced(second, 3, "b", 2)
    assert world.reports == ["torn generation"]
    world.synced(second, 3, "a", 1)
    assert world.reports == ["torn generation", "two owners"]
    world.synced(second, 2, "c")
    assert world.reports[2:] == ["generation back"]


def test_a_commit_of_an_old_generation_is_judged(world: World) -> None:
    first, second = (world.member(name, is_classic=True) for name in ("first", "second"))
    world.synced(first, 3, "a", 0)
    world.given(first, 0)
    assert not world.holdings.may_commit(GROUP, first, 0, 3)
    world.synced(second, 4, "b", 0)
    refusal = world.holdings.may_commit(GROUP, first, 0, 3)
    assert refusal
    world.holdings.judge_commit(GROUP, "")
    assert world.reports == []
    world.holdings.judge_commit(GROUP, refusal)
    assert world.reports == ["stale commit"]


def test_a_member_may_not_commit_for_a_lost_partition(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0)
    first.epoch = 5
    assert not world.holdings.may_commit(GROUP, first, 0, 5)
    assert world.holdings.may_commit(GROUP, first, 0, 4)
    world.now_s = SESSION_S
    world.given(second, 0)
    assert world.holdings.may_commit(GROUP, first, 0, 5)
    assert not world.holdings.may_commit(GROUP, second, 0, -1)


def test_a_member_is_removed_after_its_time_and_not_before(world: World) -> None:
    first = world.member("first")
    world.holdings.judge_forgotten(GROUP, first, FIRST, 0.0)
    assert world.reports == [], "it has never been told that it is one"
    world.given(first, 0)
    world.now_s = SESSION_S
    world.holdings.judge_forgotten(GROUP, first, FIRST, 1.0)
    assert world.reports == []
    world.now_s = SESSION_S - 0.1
    world.holdings.judge_forgotten(GROUP, first, FIRST, 1.0)
    assert world.reports == ["forgotten member"]


@pytest.mark.parametrize(("is_reported", "reports"), [(False, []), (True, ["forgotten member"])])
def test_a_return_that_was_not_reported_does_not_extend_a_members_time(
    world: World, *, is_reported: bool, reports: list[str]
) -> None:
    member = world.member("first")
    world.given(member, 0, 1)
    for world.now_s in (3.0, 5.0):
        world.given(member, 0)
    world.now_s = 6.5
    world.holdings.give_back(member, [1])
    if is_reported:
        world.given(member, 0)
    world.holdings.judge_forgotten(GROUP, member, FIRST, world.now_s)
    assert world.reports == reports


def test_a_member_that_releases_one_partition_too_late_loses_all(world: World) -> None:
    first, second = world.member("first"), world.member("second")
    world.given(first, 0, 1)
    for world.now_s in (3.0, 5.0):
        world.given(first, 0)
    world.given(second, 2)
    world.now_s = REBALANCE_S - 0.1
    world.given(second, 0, 2)
    assert world.reports == ["two owners"]
    world.reports.clear()
    world.now_s = REBALANCE_S
    world.given(second, 0, 2)
    assert world.reports == []

"""Deadlines of a classic group's phases, and members and ids that are lost meanwhile."""

from broker_layer.groups.values import GroupsConfig, GroupState
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.classic_driver import REBALANCE_MS, SESSION_MS, Driver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
DELAY_MS = 3_000


# -- the first rebalance ---------------------------------------------------------------------------


def test_a_first_rebalance_is_not_longer_than_the_rebalance_timeout() -> None:
    driver = Driver()
    waiters = [driver.join(rebalance_ms=DELAY_MS + 500) for _ in range(2)]
    driver.advance(DELAY_MS)
    assert not driver.joins
    driver.join(rebalance_ms=DELAY_MS + 500)
    driver.advance(499)
    assert not driver.joins
    driver.now_ms += 1
    driver.perform(driver.group.on_time(driver.moment))
    assert [driver.joins[waiter].error for waiter in waiters] == [NONE] * 2


def test_a_first_rebalance_with_a_short_timeout_ends_with_its_first_delay() -> None:
    driver = Driver()
    waiters = [driver.join(rebalance_ms=DELAY_MS - 1_000) for _ in range(2)]
    driver.now_ms += DELAY_MS
    driver.perform(driver.group.on_time(driver.moment))
    assert [driver.joins[waiter].error for waiter in waiters] == [NONE] * 2


def test_an_image_has_the_time_of_its_generation() -> None:
    driver = Driver()
    (member,) = driver.stable(1)
    assert driver.images[-1].state_changed_ms == driver.group.state_changed_ms
    driver.advance(1_000)
    driver.leave((member, None))
    assert driver.state() is GroupState.EMPTY
    assert driver.images[-1].state_changed_ms == driver.moment.wall_ms


# -- syncs -----------------------------------------------------------------------------------------


def test_a_member_that_leaves_while_its_sync_waits_is_answered() -> None:
    driver = Driver()
    waiters = [driver.join() for _ in range(2)]
    driver.advance(DELAY_MS * 2)
    leader, follower = (driver.joins[waiter].member_id for waiter in waiters)
    syncing = driver.sync(follower)
    driver.leave((follower, None))
    assert driver.syncs[syncing].error is UNKNOWN
    driver.join(leader)
    driver.sync_all([leader])
    assert driver.state() is GroupState.STABLE


def test_a_group_in_which_all_have_synced_stays_stable() -> None:
    driver = Driver()
    members = driver.stable(2)
    for _ in range(REBALANCE_MS * 2 // SESSION_MS):
        driver.advance(SESSION_MS - 1)
        assert [driver.beat(member) for member in members] == [NONE, NONE]
    assert (driver.state(), driver.group.generation) == (GroupState.STABLE, 1)


def test_a_member_that_left_does_not_count_among_those_that_must_sync() -> None:
    driver = Driver()
    waiters = [driver.join() for _ in range(3)]
    driver.advance(DELAY_MS * 2)
    first, second, third = (driver.joins[waiter].member_id for waiter in waiters)
    driver.leave((third, None))
    driver.join(first)
    driver.join(second)
    driver.sync_all([first, second])
    for _ in range(REBALANCE_MS * 2 // SESSION_MS):
        driver.advance(SESSION_MS - 1)
        assert [driver.beat(each) for each in (first, second)] == [NONE, NONE]
    assert (driver.state(), driver.group.generation) == (GroupState.STABLE, 2)


# -- static members that do not rejoin -------------------------------------------------------------


def test_a_static_member_that_does_not_rejoin_holds_up_others_only_for_a_timeout() -> None:
    driver = Driver(GroupsConfig(group_initial_rebalance_delay_ms=0))
    (static,) = driver.stable(1, instances="i")
    leaver = driver.join()
    (dynamic,) = [member for member in driver.group.roster.members if member != static]
    driver.leave((dynamic, None))
    assert driver.joins[leaver].error is UNKNOWN

    def wait(delay_ms: int) -> None:
        for _ in range(delay_ms // 5_000):
            driver.advance(5_000)
            driver.beat(static, instance="i0")

    wait(REBALANCE_MS)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    joining = driver.join()
    wait(REBALANCE_MS)
    assert driver.joins[joining].error is NONE
    assert driver.joins[joining].leader == driver.joins[joining].member_id


def test_the_end_of_a_join_phase_is_no_sign_of_life_of_a_member_that_did_not_rejoin() -> None:
    driver = Driver(GroupsConfig(group_initial_rebalance_delay_ms=0))
    first = driver.join(instance="i", rebalance_ms=5_000, session_ms=8_000)
    driver.advance(0)
    static = driver.joins[first].member_id
    driver.sync_all([static])
    joining = driver.join(rebalance_ms=5_000)
    driver.advance(5_000)
    other = driver.joins[joining].member_id
    driver.sync_all([other])
    driver.advance(2_999)
    assert sorted(driver.group.roster.members) == sorted([static, other])
    driver.advance(1)
    assert list(driver.group.roster.members) == [other]


# -- ids that are not used -------------------------------------------------------------------------


def test_only_the_ids_that_are_due_expire() -> None:
    driver = Driver(GroupsConfig(group_initial_rebalance_delay_ms=0))
    early, late = (
        driver.joins[driver.join(id_required=True, session_ms=each)].member_id
        for each in (6_000, 9_000)
    )
    driver.advance(6_000)
    assert driver.joins[driver.join(early)].error is UNKNOWN
    joining = driver.join(late)
    driver.advance(1)
    assert driver.joins[joining].error is NONE


def test_an_id_that_expires_or_is_given_back_leaves_an_empty_group_as_it_is() -> None:
    driver = Driver()
    driver.join(id_required=True, session_ms=6_000)
    driver.advance(6_000)
    member = driver.joins[driver.join(id_required=True)].member_id
    assert driver.leave((member, None)) == [NONE]
    assert driver.joins[driver.join(member)].error is UNKNOWN
    assert (driver.state(), driver.group.generation) == (GroupState.EMPTY, 0)
    assert not driver.images


def test_a_rebalance_ends_when_the_last_unused_id_expires() -> None:
    driver = Driver(GroupsConfig(group_initial_rebalance_delay_ms=0))
    (member,) = driver.stable(1)
    for session_ms in (6_000, 9_000):
        driver.join(id_required=True, session_ms=session_ms)
    joining = driver.join(member)
    driver.advance(8_999)
    assert joining not in driver.joins
    driver.advance(1)
    assert driver.joins[joining].error is NONE

"""Static members of a classic group that return without their member ids."""

from broker_layer.groups.values import GroupState
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.classic_driver import REBALANCE_MS, SESSION_MS, Driver


def test_a_member_that_returns_begins_its_session_and_is_stored_again() -> None:
    driver = Driver()
    driver.stable(2, instances="i")
    driver.advance(SESSION_MS - 1)
    new = [driver.join(instance=each, client="other") for each in ("i0", "i1")]
    driver.advance(SESSION_MS - 1)
    members = [driver.joins[waiter].member_id for waiter in new]
    assert list(driver.group.roster.members) == members
    assert [member.client_id for member in driver.images[-1].members] == ["other"] * 2


def test_a_sync_of_the_old_id_is_fenced() -> None:
    driver = Driver()
    waiters = [driver.join(instance=each) for each in ("i0", "i1")]
    driver.advance(6_000)
    waiting = driver.sync(driver.joins[waiters[1]].member_id, instance="i1")
    driver.join(instance="i1")
    assert driver.syncs[waiting].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_that_returns_before_it_has_synced_must_sync_in_time_too() -> None:
    driver = Driver()
    waiters = [driver.join(instance=each) for each in ("i0", "i1")]
    driver.advance(6_000)
    leader = driver.joins[waiters[0]].member_id
    driver.sync(leader, instance="i0")
    new = driver.joins[driver.join(instance="i1")].member_id
    assert driver.state() is GroupState.STABLE
    for _ in range(REBALANCE_MS // 5_000):
        assert driver.beat(new, instance="i1") is ErrorCode.NONE
        driver.beat(leader, instance="i0")
        driver.advance(5_000)
    assert list(driver.group.roster.members) == [leader]


def test_a_rebalance_is_complete_when_the_last_member_returns() -> None:
    driver = Driver()
    leader, _ = driver.stable(2, instances="i")
    waiter = driver.join(leader, instance="i0")
    assert waiter not in driver.joins
    driver.join(instance="i1")
    assert driver.joins[waiter].generation == 2


def test_an_id_that_was_given_to_a_client_is_not_one_of_an_instance() -> None:
    driver = Driver()
    pending = driver.joins[driver.join(id_required=True)].member_id
    refused = driver.joins[driver.join(pending, instance="i")]
    assert refused.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_dies_after_a_long_sync_is_removed() -> None:
    driver = Driver()
    waiters = [driver.join(instance=each) for each in ("i0", "i1")]
    driver.advance(6_000)
    leader, member = (driver.joins[waiter].member_id for waiter in waiters)
    waiting = driver.sync(member, instance="i1")
    for _ in range(4):  # the leader lives, and takes longer than a session to assign
        driver.advance(SESSION_MS // 2)
        driver.beat(leader, instance="i0")
    driver.leave((leader, "i0"))
    assert driver.syncs[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(SESSION_MS - 1)
    assert list(driver.group.roster.members) == [member]
    driver.advance(1)
    assert driver.state() is GroupState.EMPTY


def test_a_member_that_dies_after_a_refused_store_is_removed() -> None:
    driver = Driver()
    waiters = [driver.join(instance=each) for each in ("i0", "i1")]
    driver.advance(6_000)
    leader, member = (driver.joins[waiter].member_id for waiter in waiters)
    driver.is_storing = False
    driver.sync(member, instance="i1")
    driver.sync(leader, instance="i0")
    driver.advance(2 * SESSION_MS)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.perform(driver.group.store_failed(driver.group.generation, code, driver.moment))
    driver.advance(REBALANCE_MS)
    assert driver.state() is GroupState.EMPTY


def test_a_group_looks_for_absent_members_once_in_a_while_whatever_their_timeout_is() -> None:
    driver = Driver()
    waiters = [driver.join(), driver.join(instance="i1", rebalance_ms=0)]
    driver.advance(6_000)
    leader, member = (driver.joins[waiter].member_id for waiter in waiters)
    driver.sync(member, instance="i1")
    driver.sync(leader)
    driver.leave((leader, None))
    driver.perform(driver.group.on_time(driver.moment))
    assert driver.group.next_deadline_ms() == driver.now_ms + 1_000
    driver.advance(SESSION_MS)
    assert driver.state() is GroupState.EMPTY

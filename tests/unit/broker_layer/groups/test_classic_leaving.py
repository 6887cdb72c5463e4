"""Leaving a classic group, and returning to it as a static member."""

from broker_layer.groups.values import GroupState
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.classic_driver import Driver

NONE = ErrorCode.NONE


def test_leaving() -> None:
    driver = Driver()
    first, second, third = driver.stable(3, instances="i")
    outcomes = driver.leave(
        (first, None), ("", "i1"), ("unknown", None), ("", "none"), (third, "i0")
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert outcomes == [NONE, NONE, unknown, unknown, unknown]
    assert list(driver.group.roster.members) == [third]
    assert second not in driver.group.roster.members
    assert driver.group.roster.leader_id == third
    assert driver.leave((third, "i2")) == [NONE]
    assert driver.state() is GroupState.EMPTY
    assert driver.images[-1].members == ()
    assert driver.images[-1].generation == driver.group.generation == 2


def test_leaving_during_the_first_delay_leaves_an_empty_group() -> None:
    driver = Driver()
    waiter = driver.join()
    (member,) = driver.group.roster.members
    assert driver.leave((member, None)) == [NONE]
    assert driver.joins[waiter].error is ErrorCode.UNKNOWN_MEMBER_ID
    again = driver.join(protocol_type="connect")
    assert again not in driver.joins, "the others are gone, and so is their type"
    driver.leave((next(iter(driver.group.roster.members)), None))
    driver.advance(6_000)
    assert driver.state() is GroupState.EMPTY


def test_one_of_several_that_leave_is_enough_for_a_rebalance() -> None:
    driver = Driver()
    _, follower = driver.stable(2)
    assert driver.leave(("unknown", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.state() is GroupState.STABLE
    driver.leave((follower, None), ("unknown", None))
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_static_member_returns_without_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, instances="i")
    answer = driver.joins[driver.join(instance="i1")]
    assert (answer.error, answer.generation, answer.members) == (NONE, 1, ())
    assert answer.member_id not in (leader, follower)
    assert driver.state() is GroupState.STABLE
    assert answer.member_id in [member.member_id for member in driver.images[-1].members]
    synced = driver.sync(answer.member_id, instance="i1")
    assert driver.syncs[synced].assignment == follower.encode()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat(follower, instance="i1") is fenced
    assert driver.syncs[driver.sync(follower, instance="i1")].error is fenced
    assert driver.joins[driver.join(follower, instance="i1")].error is fenced
    assert driver.leave((follower, "i1")) == [fenced]
    assert driver.beat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_leader_returns_without_a_rebalance() -> None:
    driver = Driver()
    leader, _ = driver.stable(2, instances="i")
    new = driver.joins[driver.join(instance="i0")]
    assert new.skip_assignment
    assert new.leader == new.member_id == driver.group.roster.leader_id
    assert len(new.members) == 2
    old = driver.joins[driver.join(instance="i0", can_skip=False)]
    assert (old.leader, old.members, old.skip_assignment) == (new.member_id, (), False)
    assert driver.group.generation == 1
    assert leader not in driver.group.roster.members


def test_a_static_member_with_other_protocols_rebalances() -> None:
    driver = Driver()
    both = (("range", b""), ("sticky", b""))
    driver.join(instance="a", protocols=both)
    driver.advance(3_000)
    driver.sync_all(list(driver.group.roster.members))
    driver.join(instance="a", protocols=(("sticky", b""),))
    assert driver.group.protocol_name == "sticky"
    assert driver.group.generation == 2


def test_a_static_member_that_returns_during_a_rebalance_fences_its_old_id() -> None:
    driver = Driver()
    old_waiter = driver.join(instance="a")
    new_waiter = driver.join(instance="a")
    assert driver.joins[old_waiter].error is ErrorCode.FENCED_INSTANCE_ID
    assert new_waiter not in driver.joins, "the first rebalance still waits for more members"
    driver.advance(6_000)
    member = driver.joins[new_waiter].member_id
    syncing = driver.sync(driver.joins[new_waiter].member_id, generation=1, instance="a")
    assert driver.syncs[syncing].error is NONE
    other = driver.join()
    driver.join(member, instance="a")
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    waiting = driver.sync(driver.joins[other].member_id)
    driver.join(instance="a")
    assert driver.syncs[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS

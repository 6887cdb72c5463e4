"""What a classic group does with requests that come twice, late, or while it has no room."""

from dataclasses import replace

from broker_layer.groups.classic_group import ClassicGroup
from broker_layer.groups.values import GroupsConfig, GroupState
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.classic_driver import SESSION_MS, Driver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ORDERS = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x06orders"
"""Version 0, one topic, and its name."""


def completing(count: int) -> tuple[Driver, list[str]]:
    """Return a group of some members, none of which has synced yet."""
    driver = Driver()
    waiters = [driver.join() for _ in range(count)]
    driver.advance(6_000)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    return driver, [driver.joins[waiter].member_id for waiter in waiters]


# -- sessions --------------------------------------------------------------------------------------


def test_a_sync_or_a_join_of_a_stable_group_is_a_sign_of_life() -> None:
    driver = Driver()
    leader, joining, syncing, silent = driver.stable(4)
    driver.advance(SESSION_MS - 1)
    driver.beat(leader)
    driver.join(joining)
    driver.sync(syncing)
    driver.advance(SESSION_MS - 1)
    assert list(driver.group.roster.members) == [leader, joining, syncing]
    assert driver.beat(silent) is UNKNOWN


def test_a_stored_assignment_is_a_sign_of_life_only_of_members_that_wait_for_it() -> None:
    driver, (leader, waiting, silent) = completing(3)
    driver.advance(SESSION_MS - 1)
    driver.sync(waiting)
    driver.sync(leader)
    driver.advance(1)
    assert list(driver.group.roster.members) == [leader, waiting]
    assert driver.beat(silent) is UNKNOWN


def test_a_commit_is_no_sign_of_life_before_the_assignment() -> None:
    driver, (leader, follower) = completing(2)
    driver.advance(SESSION_MS - 1)
    driver.beat(leader)
    driver.group.touch(follower, driver.moment)
    driver.advance(1)
    assert list(driver.group.roster.members) == [leader]
    driver.group.touch(follower, driver.moment)  # it is gone


def test_timeouts_are_those_of_the_latest_join() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    driver.join(follower, session_ms=6_000, rebalance_ms=70_000)
    driver.sync_all([leader, follower])
    image = driver.images[-1].members[1]
    assert (image.session_timeout_ms, image.rebalance_timeout_ms) == (6_000, 70_000)


def test_the_next_deadline_is_that_of_the_first_unused_id() -> None:
    driver = Driver()
    for session_ms in (9_000, 6_000, 8_000):
        driver.join(id_required=True, session_ms=session_ms)
    assert driver.group.next_deadline_ms() == driver.now_ms + 6_000


# -- assignments -----------------------------------------------------------------------------------


def test_a_sync_that_is_sent_twice_answers_the_first_and_is_stored_once() -> None:
    driver, (leader,) = completing(1)
    driver.is_storing = False
    first = driver.sync(leader, assignments={leader: b"1"})
    second = driver.sync(leader, assignments={leader: b"2"})
    assert driver.syncs[first].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(driver.images) == 1
    driver.store()
    assert driver.syncs[second].assignment == b"1"


def test_only_the_image_of_this_generation_decides() -> None:
    driver, (leader,) = completing(1)
    driver.is_storing = False
    syncing = driver.sync(leader)
    failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.perform(driver.group.stored(0, driver.moment))
    driver.perform(driver.group.store_failed(0, failed, driver.moment))
    assert syncing not in driver.syncs
    driver.store()
    assert driver.syncs[syncing].error is NONE


def test_an_image_without_an_assignment_may_fail() -> None:
    driver = Driver()
    driver.stable(1)
    failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.perform(driver.group.store_failed(1, failed, driver.moment))
    assert driver.state() is GroupState.STABLE


# -- room and images -------------------------------------------------------------------------------


def test_a_full_rebalance_takes_only_members_that_have_joined_already() -> None:
    driver = Driver(GroupsConfig(group_size_max=2, group_initial_rebalance_delay_ms=0))
    first, second = driver.stable(2)
    driver.join(first)
    driver.join()
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.joins[driver.join()].error is full
    assert driver.joins[driver.join(second)].error is full
    assert driver.join(first) not in driver.joins


def test_a_loaded_group_has_the_stored_leader_or_is_empty() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    assert driver.images[-1].leader == leader
    image = replace(driver.images[-1], leader=follower)
    assert ClassicGroup.from_image(image, driver.config, 0).roster.leader_id == follower
    empty = replace(image, members=(), leader=None)
    assert ClassicGroup.from_image(empty, driver.config, 0).state is GroupState.EMPTY


def test_the_topics_of_consumers_are_known_if_each_names_them() -> None:
    def topics(metadata: bytes, protocol_type: str = "consumer") -> tuple[str, ...] | None:
        driver = Driver()
        for each in (ORDERS, metadata):
            driver.join(protocols=(("range", each),), protocol_type=protocol_type)
        driver.advance(6_000)
        return driver.group.subscription()

    assert topics(ORDERS) == ("orders",)
    assert topics(b"other") is None
    assert topics(ORDERS, "connect") is None

"""All transitions and refusals of a classic group."""

from broker_layer.coordinator_partitions import RECORD_BYTES_MAX
from broker_layer.groups.classic_group import PENDING_IDS_MAX, ClassicGroup
from broker_layer.groups.values import GroupsConfig, GroupState
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.classic_driver import REBALANCE_MS, SESSION_MS, Driver

NONE = ErrorCode.NONE


def test_a_first_rebalance_waits_for_more_members() -> None:
    driver = Driver()
    first = driver.join()
    driver.advance(2_999)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    second = driver.join()
    driver.advance(1)
    assert not driver.joins, "a new member extends the delay"
    driver.advance(3_000)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    leader, follower = driver.joins[first], driver.joins[second]
    assert (leader.generation, follower.generation) == (1, 1)
    assert leader.leader == follower.leader == leader.member_id
    assert [member.member_id for member in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == ()
    assert leader.protocol_name == "range"


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    driver = Driver(GroupsConfig(group_initial_rebalance_delay_ms=25_000))
    for _ in range(6):
        driver.join()
        driver.advance(10_000)
    assert driver.state() is GroupState.COMPLETING_REBALANCE


def test_an_assignment_takes_effect_when_it_is_stored() -> None:
    driver = Driver()
    waiters = [driver.join(), driver.join()]
    driver.advance(6_000)
    first, second = (driver.joins[waiter].member_id for waiter in waiters)
    driver.is_storing = False
    follower = driver.sync(second)
    leader = driver.sync(first, assignments={first: b"1", second: b"2"})
    assert not driver.syncs
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    driver.store()
    assert driver.syncs[leader].assignment == b"1"
    assert driver.syncs[follower].assignment == b"2"
    assert driver.state() is GroupState.STABLE
    assert {member.member_id: member.assignment for member in driver.images[-1].members} == {
        first: b"1",
        second: b"2",
    }
    again = driver.sync(second)
    assert driver.syncs[again].assignment == b"2"


def test_an_outdated_assignment_does_not_take_effect() -> None:
    driver = Driver()
    waiter = driver.join()
    driver.advance(3_000)
    member = driver.joins[waiter].member_id
    driver.is_storing = False
    syncing = driver.sync(member, assignments={member: b"1"})
    driver.join()
    assert driver.syncs[syncing].error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.store()
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_an_assignment_that_the_log_refuses_is_repeated() -> None:
    driver = Driver()
    waiter = driver.join()
    driver.advance(3_000)
    member = driver.joins[waiter].member_id
    driver.is_storing = False
    syncing = driver.sync(member, assignments={member: b"1"})
    failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.perform(driver.group.store_failed(1, failed, driver.moment))
    assert driver.syncs[syncing].error is failed
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_member_must_rejoin_with_its_assigned_id() -> None:
    driver = Driver()
    waiter = driver.join(id_required=True)
    refused = driver.joins[waiter]
    assert refused.error is ErrorCode.MEMBER_ID_REQUIRED
    assert driver.state() is GroupState.EMPTY
    driver.join(refused.member_id, id_required=True)
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_an_unused_id_expires() -> None:
    driver = Driver()
    waiter = driver.join(id_required=True)
    driver.advance(SESSION_MS)
    late = driver.join(driver.joins[waiter].member_id)
    assert driver.joins[late].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_member_that_got_its_id() -> None:
    driver = Driver()
    (member,) = driver.stable(1)
    pending = driver.joins[driver.join(id_required=True)].member_id
    rejoined = driver.join(member)
    assert rejoined not in driver.joins
    joined = driver.join(pending)
    assert driver.joins[rejoined].generation == driver.joins[joined].generation == 2


def test_a_rebalance_continues_when_the_awaited_id_expires_or_leaves() -> None:
    driver = Driver()
    (member,) = driver.stable(1)
    driver.join(id_required=True)
    rejoined = driver.join(member)
    driver.advance(SESSION_MS)
    assert driver.joins[rejoined].generation == 2
    driver.sync_all([member])
    pending = driver.joins[driver.join(id_required=True)].member_id
    rejoined = driver.join(member)
    assert driver.leave((pending, None)) == [NONE]
    assert driver.joins[rejoined].generation == 3


def test_heartbeats_in_every_state() -> None:
    driver = Driver()
    assert driver.beat("unknown") is ErrorCode.UNKNOWN_MEMBER_ID
    first, second = driver.stable(2)
    assert driver.beat(first) is NONE
    assert driver.beat(first, generation=7) is ErrorCode.ILLEGAL_GENERATION
    driver.join(first)
    assert driver.beat(second) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(second)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    assert driver.beat(second) is NONE


def test_sync_in_wrong_states() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    assert driver.syncs[driver.sync("unknown")].error is ErrorCode.UNKNOWN_MEMBER_ID
    illegal = driver.sync(first, generation=9)
    assert driver.syncs[illegal].error is ErrorCode.ILLEGAL_GENERATION
    other_type = driver.sync(first, protocol_type="connect")
    for inconsistent in (other_type, driver.sync(first, protocol_name="sticky")):
        assert driver.syncs[inconsistent].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.join(first)
    early = driver.sync(second)
    assert driver.syncs[early].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_only_followers_that_did_not_change_rejoin_without_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    same = driver.joins[driver.join(follower)]
    assert (same.error, same.generation, same.members) == (NONE, 1, ())
    assert driver.state() is GroupState.STABLE
    driver.join(follower, protocols=(("range", b"other"),))
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.join(leader)
    assert driver.group.generation == 2


def test_a_leader_that_rejoins_rebalances() -> None:
    driver = Driver()
    leader, _ = driver.stable(2)
    driver.join(leader)
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_lost_join_answer_is_repeated() -> None:
    driver = Driver()
    waiters = [driver.join(), driver.join()]
    driver.advance(6_000)
    leader, follower = (driver.joins[waiter].member_id for waiter in waiters)
    again = driver.joins[driver.join(leader)]
    assert (again.generation, len(again.members)) == (1, 2)
    assert driver.joins[driver.join(follower)].members == ()
    driver.join(follower, protocols=(("range", b"other"),))
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_join_that_is_sent_twice_answers_the_first() -> None:
    driver = Driver()
    first, _ = driver.stable(2)
    waiter = driver.join(first)
    driver.join(first)
    assert driver.joins[waiter].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_protocols_must_be_shared() -> None:
    driver = Driver()
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.joins[driver.join(protocols=())].error is inconsistent
    assert driver.joins[driver.join(protocol_type="")].error is inconsistent
    driver.join(protocols=(("range", b""), ("sticky", b"")))
    assert driver.join(protocols=(("range", b""), ("other", b""))) not in driver.joins
    assert driver.joins[driver.join(protocol_type="connect")].error is inconsistent
    assert driver.joins[driver.join(protocols=(("other", b""),))].error is inconsistent


def test_the_protocol_with_most_votes_wins() -> None:
    driver = Driver()
    orders = ["abc", "bac", "bca"]
    for order in orders:
        driver.join(protocols=tuple((name, b"") for name in order))
    driver.advance(6_000)
    assert driver.group.protocol_name == "b"


def test_an_unknown_member_cannot_join() -> None:
    driver = Driver()
    driver.stable(1)
    refused = driver.joins[driver.join("unknown")]
    assert (refused.error, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "unknown")


def test_a_full_group_refuses_members() -> None:
    driver = Driver(GroupsConfig(group_size_max=2, group_initial_rebalance_delay_ms=0))
    members = driver.stable(2)
    full = driver.joins[driver.join()]
    assert (full.error, full.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    rejoined = driver.join(members[0])
    driver.join(members[1])
    assert driver.joins[rejoined].error is NONE


def test_a_silent_member_is_removed() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    driver.advance(SESSION_MS - 1)
    assert driver.beat(first) is NONE
    driver.advance(1)
    assert list(driver.group.roster.members) == [first]
    assert driver.beat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.beat(second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_the_others_is_alive() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    waiter = driver.join(first, session_ms=6_000)
    for _ in range(4):
        driver.advance(SESSION_MS - 1)
        driver.beat(second)
    assert waiter not in driver.joins
    driver.join(second)
    assert driver.joins[waiter].error is NONE


def test_those_that_do_not_rejoin_in_time_are_removed() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    waiter = driver.join(first)
    for _ in range(REBALANCE_MS // 5_000):
        driver.beat(second)
        driver.advance(5_000)
    assert driver.joins[waiter].error is NONE
    assert list(driver.group.roster.members) == [first]


def test_a_new_leader_is_found_among_those_that_joined() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, instances="i")
    driver.join(follower, instance="i1", protocols=(("range", b"new"),))
    for _ in range(REBALANCE_MS // 5_000):
        driver.beat(leader, instance="i0")
        driver.advance(5_000)
    assert driver.group.roster.leader_id == follower
    assert leader in driver.group.roster.members, "static members stay until their session ends"


def test_static_members_alone_postpone_the_end_of_a_rebalance() -> None:
    driver = Driver()
    leader, _ = driver.stable(2, instances="i")
    driver.leave(("", "i1"))
    for _ in range(REBALANCE_MS // 5_000 + 1):
        driver.beat(leader, instance="i0")
        driver.advance(5_000)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.join(leader, instance="i0")
    assert driver.state() is GroupState.COMPLETING_REBALANCE


def test_those_that_do_not_sync_in_time_are_removed() -> None:
    driver = Driver()
    waiters = [driver.join(), driver.join()]
    driver.advance(6_000)
    leader, follower = (driver.joins[waiter].member_id for waiter in waiters)
    driver.sync(leader)
    for _ in range(REBALANCE_MS // 5_000):
        driver.beat(leader)
        driver.beat(follower)
        driver.advance(5_000)
    assert list(driver.group.roster.members) == [leader]
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_parked_first_join_expires() -> None:
    config = GroupsConfig(group_initial_rebalance_delay_ms=0, new_member_join_timeout_ms=30_000)
    driver = Driver(config)
    (member,) = driver.stable(1)
    waiter = driver.join()
    for _ in range(7):
        driver.beat(member)
        driver.advance(5_000)
    assert driver.joins[waiter].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_refusals() -> None:
    driver = Driver()

    def refusal(member: str, generation: int, *, is_transactional: bool = False) -> ErrorCode:
        return driver.group.commit_refusal(
            member, None, generation, is_transactional=is_transactional
        )

    assert refusal("", -1) is NONE
    assert refusal("", 0, is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    waiters = [driver.join(), driver.join()]
    driver.advance(6_000)
    first, second = (driver.joins[waiter].member_id for waiter in waiters)
    assert refusal(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert refusal(first, 1, is_transactional=True) is NONE
    driver.sync_all([first, second])
    assert refusal(first, 1) is NONE
    assert refusal(first, 0) is ErrorCode.ILLEGAL_GENERATION
    assert refusal("unknown", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal("", -1, is_transactional=True) is NONE
    assert refusal("unknown", -1, is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(first, 0, is_transactional=True) is ErrorCode.ILLEGAL_GENERATION
    driver.join(first)
    assert refusal(second, 1) is NONE
    for member, generation in ((second, 1), ("", -1)):
        static = driver.group.commit_refusal(member, "x", generation, is_transactional=True)
        assert static is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life() -> None:
    driver = Driver()
    (member,) = driver.stable(1)
    driver.advance(SESSION_MS - 1)
    driver.group.touch(member, driver.moment)
    driver.advance(SESSION_MS - 1)
    assert driver.beat(member) is NONE


def test_sessions_begin_again_after_a_load() -> None:
    driver = Driver()
    members = driver.stable(2)
    group = ClassicGroup.from_image(driver.images[-1], driver.config, 500_000)
    assert group.state is GroupState.STABLE
    assert group.next_deadline_ms() == 500_000 + SESSION_MS
    assert list(group.roster.members) == members
    assert group.roster.leader_id == members[0]
    driver.group = group
    driver.now_ms = 500_000
    assert driver.syncs[driver.sync(members[1])].assignment == members[1].encode()


def test_a_moving_group_answers_parked_requests() -> None:
    driver = Driver()
    joining = driver.join()
    driver.perform(driver.group.end(ErrorCode.NOT_COORDINATOR))
    assert driver.joins[joining].error is ErrorCode.NOT_COORDINATOR


def test_the_oldest_unused_id_is_dropped_at_the_limit() -> None:
    driver = Driver()
    waiters = [driver.join(id_required=True) for _ in range(PENDING_IDS_MAX + 1)]
    assert len(driver.group.roster.pending) == PENDING_IDS_MAX
    oldest, next_oldest = (driver.joins[waiter].member_id for waiter in waiters[:2])
    assert driver.joins[driver.join(oldest)].error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.join(next_oldest)
    assert list(driver.group.roster.members) == [next_oldest]


def test_a_member_whose_metadata_does_not_fit_in_the_groups_record_is_refused() -> None:
    driver = Driver()
    half = RECORD_BYTES_MAX // 2 - len("range")
    large, full = (("range", bytes(half)),), (("range" * RECORD_BYTES_MAX, b""),)
    driver.join(instance="i", protocols=large)
    driver.join(protocols=large)
    refused = driver.joins[driver.join(protocols=(("range", b"x"),))]
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    refused = driver.joins[driver.join(instance="i", protocols=full)]
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(driver.group.roster.members) == 2
    driver.join(instance="i", protocols=large)
    driver.advance(6_000)
    assert driver.state() is GroupState.COMPLETING_REBALANCE, "each counts once"

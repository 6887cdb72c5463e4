"""Members of a KIP-848 group that leave, stay away or are late, and their deadlines."""

from broker_layer.groups.classic_group import NEVER_MS
from broker_layer.groups.values import GroupsConfig, MemberState, Moment
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.consumer_driver import REBALANCE_MS, Client, ConsumerDriver

LONG = GroupsConfig(consumer_session_timeout_ms=REBALANCE_MS * 10)
"""No session ends before a rebalance timeout."""


def revoking(driver: ConsumerDriver, *, instance_id: str | None = None) -> Client:
    """Return a member that does not give up what the new member `b` waits for."""
    lazy = Client("a", instance_id=instance_id, is_lazy=True)
    driver.settle(lazy)
    lazy.owned = lazy.wanted
    driver.send(Client("b"))
    driver.send(lazy)
    assert driver.group.members["a"].state is MemberState.UNREVOKED
    return lazy


def test_a_group_without_members_has_no_deadline() -> None:
    driver = ConsumerDriver()
    assert driver.group.next_deadline_ms() == NEVER_MS
    client = Client("a")
    driver.send(client)
    assert driver.group.next_deadline_ms() == driver.now_ms + 45_000
    driver.send(client, epoch=-1)
    assert driver.group.next_deadline_ms() == NEVER_MS


def test_each_heartbeat_begins_the_session_again() -> None:
    driver = ConsumerDriver()
    client = Client("a")
    driver.send(client)
    driver.advance(30_000)
    driver.send(client)
    assert driver.group.next_deadline_ms() == driver.now_ms + 45_000


def test_no_member_is_removed_before_the_deadline() -> None:
    driver = ConsumerDriver()
    driver.send(Client("a"))
    due_ms = driver.group.next_deadline_ms()
    driver.group.on_time(Moment(due_ms - 1, 0))
    assert list(driver.group.members) == ["a"]
    driver.group.on_time(Moment(due_ms, 0))
    assert not driver.group.members


def test_the_deadline_of_a_revocation_is_the_rebalance_timeout() -> None:
    driver = ConsumerDriver(config=LONG)
    lazy = revoking(driver)
    due_ms = driver.now_ms + REBALANCE_MS
    assert driver.group.next_deadline_ms() == due_ms
    driver.advance(1_000)
    driver.send(lazy)
    assert driver.group.next_deadline_ms() == due_ms, "a heartbeat does not put it off"


def test_the_first_deadline_of_several_revocations_counts() -> None:
    driver = ConsumerDriver(config=LONG)
    first, second = Client("a", is_lazy=True), Client("b")
    driver.settle(first, second)
    second.is_lazy, first.owned = True, first.wanted
    due_ms = driver.now_ms + REBALANCE_MS
    driver.send(Client("c"))
    driver.send(first)
    driver.advance(1_000)
    driver.send(second)
    states = [driver.group.members[each].state for each in "ab"]
    assert states == [MemberState.UNREVOKED] * 2
    assert driver.group.next_deadline_ms() == due_ms


def test_a_member_that_revoked_in_time_stays() -> None:
    driver = ConsumerDriver(config=LONG)
    member = revoking(driver)
    member.owned = member.wanted
    driver.send(member)
    assert driver.group.members["a"].state is MemberState.STABLE
    assert driver.group.next_deadline_ms() > driver.now_ms + REBALANCE_MS
    driver.advance(REBALANCE_MS)
    assert sorted(driver.group.members) == ["a", "b"]


def test_a_member_that_has_nothing_to_revoke_has_no_deadline_for_it() -> None:
    driver = ConsumerDriver(config=LONG)
    driver.send(Client("a"))
    driver.send(Client("b"))
    assert driver.group.next_deadline_ms() > driver.now_ms + REBALANCE_MS


def test_a_member_that_leaves_while_it_revokes_has_no_deadline() -> None:
    driver = ConsumerDriver(config=LONG)
    lazy = revoking(driver)
    driver.send(lazy, epoch=-1)
    assert driver.group.next_deadline_ms() > driver.now_ms + REBALANCE_MS


def test_a_member_with_a_past_session_and_revocation_is_removed_once() -> None:
    driver = ConsumerDriver(config=GroupsConfig(consumer_session_timeout_ms=REBALANCE_MS))
    revoking(driver)
    driver.now_ms += 1
    driver.send(Client("b"), epoch=2)
    epoch = driver.group.epoch
    driver.group.on_time(Moment(driver.now_ms + REBALANCE_MS - 1, 0))
    assert list(driver.group.members) == ["b"]
    assert driver.group.epoch == epoch + 1


def test_a_static_member_that_leaves_while_it_revokes_gives_up_at_once() -> None:
    driver = ConsumerDriver(config=LONG)
    lazy = revoking(driver, instance_id="i")
    assert driver.send(lazy, epoch=-2).error is ErrorCode.NONE
    result = driver.send(Client("b"), epoch=2)
    assert len(result.assignment or ()) == 3, "it has stopped reading them"
    assert driver.group.next_deadline_ms() > driver.now_ms + REBALANCE_MS
    driver.advance(REBALANCE_MS)
    assert sorted(driver.group.members) == ["a", "b"]


def test_a_static_member_that_is_away_keeps_what_it_need_not_revoke() -> None:
    driver = ConsumerDriver()
    first, second = Client("a", instance_id="i"), Client("b")
    driver.settle(first, second)
    owned = first.owned
    driver.send(first, epoch=-2)
    driver.settle(second)
    assert not set(second.owned) & set(owned)
    assert driver.state() == "Reconciling"
    again = driver.send(Client("a2", instance_id="i"))
    assert again.assignment == owned
    assert driver.state() == "Stable"


def test_a_static_member_returns_with_its_own_id() -> None:
    driver = ConsumerDriver()
    client = Client("a", instance_id="i")
    driver.settle(client)
    owned = client.owned
    for epoch in (0, -2, 0):
        assert driver.send(client, epoch=epoch).error is ErrorCode.NONE
    assert (client.epoch, client.wanted) == (1, owned)
    assert driver.group.epoch == 1


def test_a_successor_of_a_static_member_has_no_previous_epoch() -> None:
    driver = ConsumerDriver()
    first = Client("a", instance_id="i")
    driver.settle(first, Client("b"))
    driver.send(first, epoch=-2)
    driver.send(Client("a2", instance_id="i"))
    member = driver.group.members["a2"]
    assert (member.epoch, member.previous_epoch) == (2, 0)
    assert driver.group.next_deadline_ms() == driver.now_ms + 45_000


def test_a_static_member_has_one_session_after_its_return() -> None:
    driver = ConsumerDriver()
    first = Client("a", instance_id="i")
    driver.settle(first)
    driver.send(first, epoch=-2)
    driver.advance(10_000)
    driver.send(Client("a2", instance_id="i"))
    assert driver.group.next_deadline_ms() == driver.now_ms + 45_000


def test_an_unknown_member_cannot_leave() -> None:
    driver = ConsumerDriver()
    driver.settle(Client("a"))
    epoch = driver.group.epoch
    assert driver.send(Client("b"), epoch=-1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.epoch == epoch
    assert list(driver.group.members) == ["a"]

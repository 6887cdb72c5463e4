"""All transitions and refusals of a KIP-848 group."""

from collections.abc import Iterable

import pytest

from broker_layer.errors import TopicError
from broker_layer.groups import consumer_targets
from broker_layer.groups.consumer_group import ConsumerGroup
from broker_layer.groups.consumer_targets import check_pattern, matching_topics
from broker_layer.groups.records import decode, encode
from broker_layer.groups.values import (
    ConsumerGroupChanged,
    ConsumerGroupImage,
    GroupsConfig,
    MemberRemoved,
    MemberState,
)
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.consumer_driver import (
    REBALANCE_MS,
    Client,
    ConsumerDriver,
    partitions_of,
)

NONE = ErrorCode.NONE


def test_a_first_member_gets_all_partitions_at_once() -> None:
    driver = ConsumerDriver()
    assert driver.state() == "Empty"
    client = Client("a")
    result = driver.send(client)
    assert (result.error, result.epoch) == (NONE, 1)
    assert list(result.assignment or ()) == partitions_of(driver, "orders", 0, 1, 2, 3, 4, 5)
    assert driver.state() == "Stable"
    assert driver.send(client).assignment is None, "it knows already"


def test_partitions_are_revoked_before_they_are_assigned() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first)
    joined = driver.send(second)
    assert (joined.epoch, joined.assignment) == (2, ())
    assert driver.group.members["b"].state is MemberState.UNRELEASED
    revoking = driver.send(first)
    assert revoking.epoch == 1, "the epoch advances when nothing is left to revoke"
    assert len(revoking.assignment or ()) == 3
    assert driver.group.members["a"].state is MemberState.UNREVOKED
    assert driver.state() == "Reconciling"
    assert driver.send(second).assignment is None, "they are not given up yet"
    driver.obey(first)
    assert driver.send(first).epoch == 2
    given = driver.send(second)
    assert len(given.assignment or ()) == 3
    assert driver.state() == "Stable"


def test_a_member_that_does_not_revoke_is_removed_after_its_rebalance_timeout() -> None:
    driver = ConsumerDriver()
    first, second = Client("a", is_lazy=True), Client("b")
    driver.settle(first)
    first.owned = first.wanted
    driver.send(second)
    driver.send(first)
    for _ in range(REBALANCE_MS // 20_000):
        driver.advance(20_000)
        driver.send(first)
        driver.send(second)
    assert list(driver.group.members) == ["b"]
    assert driver.send(first).error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.settle(second)
    assert len(second.owned) == 6


def test_a_silent_member_is_removed_and_its_partitions_move() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first, second)
    driver.advance(44_999)
    driver.send(second)
    driver.advance(1)
    assert list(driver.group.members) == ["b"]
    assert driver.state() == "Assigning"
    driver.settle(second)
    assert len(second.owned) == 6


def test_leaving_bumps_the_epoch() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first, second)
    epoch = driver.group.epoch
    assert driver.send(first, epoch=-1).epoch == -1
    assert driver.group.epoch == epoch + 1
    assert driver.send(first, epoch=-1).error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.settle(second)
    assert len(second.owned) == 6


def test_wrong_epochs_are_fenced() -> None:
    driver = ConsumerDriver()
    client = Client("a")
    driver.settle(client)
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.send(client, epoch=7).error is fenced
    assert driver.send(Client("unknown"), epoch=1).error is ErrorCode.UNKNOWN_MEMBER_ID
    other = Client("b")
    driver.settle(client, other)
    assert client.epoch == 2
    lost = driver.send(client, epoch=1)
    assert lost.error is NONE, "the answer with the new epoch was lost"
    client.owned = (*client.owned, (b"?" * 16, 9))
    assert driver.send(client, epoch=1).error is fenced


def test_a_known_member_may_join_again() -> None:
    driver = ConsumerDriver()
    client = Client("a")
    driver.settle(client)
    client.owned = ()
    result = driver.send(client, epoch=0)
    assert (result.epoch, len(result.assignment or ())) == (1, 6)


def test_a_changed_subscription_moves_the_member() -> None:
    driver = ConsumerDriver()
    client = Client("a")
    driver.settle(client)
    driver.change(client, ("other",))
    driver.obey(client)
    driver.settle(client)
    assert list(client.owned) == partitions_of(driver, "other", 0, 1, 2)
    assert driver.group.epoch == 2


def test_new_and_grown_topics_are_assigned() -> None:
    driver = ConsumerDriver()
    client = Client("a", topics=("orders", "late"))
    driver.settle(client)
    driver.topics.put("orders", 8)
    driver.settle(client)
    assert len(client.owned) == 8
    driver.topics.put("late", 1)
    driver.settle(client)
    assert len(client.owned) == 9
    driver.topics.drop("orders")
    driver.settle(client)
    assert list(client.owned) == partitions_of(driver, "late", 0)
    epoch = driver.group.epoch
    driver.topics.put("unrelated", 1)
    driver.settle(client)
    assert driver.group.epoch == epoch


def test_static_members_return_without_moving_partitions() -> None:
    driver = ConsumerDriver()
    first, second = Client("a", instance_id="i"), Client("b", instance_id="j")
    driver.settle(first, second)
    epoch, owned = driver.group.epoch, first.owned
    assert driver.send(first, epoch=-2).epoch == -2
    driver.settle(second)
    again = Client("a2", instance_id="i")
    result = driver.send(again)
    assert (result.epoch, result.assignment) == (epoch, owned)
    assert driver.group.epoch == epoch
    assert sorted(driver.group.members) == ["a2", "b"]
    assert driver.send(first, epoch=epoch).error is ErrorCode.FENCED_INSTANCE_ID
    assert driver.send(first, epoch=-1).error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_removed() -> None:
    driver = ConsumerDriver()
    first, second = Client("a", instance_id="i"), Client("b")
    driver.settle(first, second)
    driver.send(first, epoch=-2)
    driver.advance(30_000)
    driver.send(second)
    driver.advance(15_000)
    assert list(driver.group.members) == ["b"]


def test_an_instance_id_in_use_is_refused() -> None:
    driver = ConsumerDriver()
    driver.settle(Client("a", instance_id="i"))
    thief = Client("b", instance_id="i")
    assert driver.send(thief).error is ErrorCode.UNRELEASED_INSTANCE_ID
    unknown = Client("c", instance_id="none")
    assert driver.send(unknown, epoch=3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.send(unknown, epoch=-2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_members() -> None:
    driver = ConsumerDriver(config=GroupsConfig(consumer_group_size_max=1))
    first = Client("a")
    driver.settle(first)
    assert driver.send(Client("b")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.send(first, epoch=0).error is NONE


def test_patterns_subscribe_to_new_topics() -> None:
    driver = ConsumerDriver()
    client = Client("a", topics=None, pattern="o.*s")
    driver.settle(client)
    assert list(client.owned) == partitions_of(driver, "orders", 0, 1, 2, 3, 4, 5)
    driver.topics.put("ovens", 1)
    driver.settle(client)
    assert len(client.owned) == 7
    assert sorted(driver.group.subscription()) == ["orders", "ovens"]
    bad = driver.send(Client("b", topics=None, pattern="(")).error
    assert bad is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern",
    [
        "(a",
        "(?=a)b",
        r"(a)\1",
        "((a{100}){100}){100}",
        "a" * 1001,
        "(?<!a)b",
        "*",
    ],
)
def test_invalid_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(TopicError) as refused:
        check_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_patterns_match_complete_names_and_no_internal_topics() -> None:
    names = ["__consumer_offsets", "orders", "orders-eu", "[x]"]
    for pattern, expected in [
        ("orders", ["orders"]),
        ("(orders|other)(-eu)?", ["orders", "orders-eu"]),
        (".*", ["[x]", "orders", "orders-eu"]),
        (r"(?i)ORDERS[^x]+", ["orders-eu"]),
        (r"\[x\]", ["[x]"]),
        (r"[]x[*+(?]{3}", ["[x]"]),
        ("((o|o?)*r*)*ders.*.*.*.*", ["orders", "orders-eu"]),
    ]:
        check_pattern(pattern)
        assert list(matching_topics(pattern, names)) == expected


def test_patterns_match_in_linear_time() -> None:
    pattern = "(a|a?)" * 40 + "b"
    check_pattern(pattern)
    assert matching_topics(pattern, ["a" * 249, "a" * 30 + "b"]) == ("a" * 30 + "b",)


def test_a_group_is_stable_when_all_members_are() -> None:
    driver = ConsumerDriver()
    assert driver.state() == "Empty"
    first, second = Client("a"), Client("b")
    driver.settle(first)
    assert driver.state() == "Stable"
    driver.send(second)
    assert driver.state() == "Reconciling", "one is in the former epoch, one waits"
    driver.send(second, epoch=-1)
    assert driver.state() == "Assigning"
    driver.send(first)
    assert driver.state() == "Stable"


def test_a_group_is_not_stable_while_a_member_waits_or_is_behind() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first)
    driver.send(second)
    driver.send(first)
    driver.obey(first)
    driver.send(first)
    assert driver.state() == "Reconciling", "one member waits"
    driver.send(second)
    assert driver.state() == "Stable"
    driver.topics.put("orders", 8)
    driver.send(first)
    assert driver.state() == "Reconciling", "one member is in the former epoch"


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([], "uniform"),
        ([None], "uniform"),
        (["range"], "range"),
        (["range", "uniform"], "uniform"),
        (["uniform", "range", "range"], "range"),
        (["range", None, None], "range"),
        (["unknown", "unknown", "range"], "range"),
    ],
)
def test_the_assignor_with_most_votes_wins(votes: list[str | None], expected: str) -> None:
    driver = ConsumerDriver()
    for number, assignor in enumerate(votes):
        driver.send(Client(f"m{number}", assignor=assignor))
    assert driver.group.assignor == expected


def test_the_assignor_with_most_votes_is_used() -> None:
    driver = ConsumerDriver({"orders": 5, "other": 5})
    topics = ("orders", "other")
    clients = [Client(each, topics=topics, assignor="range") for each in "ab"]
    clients.append(Client("c", topics=topics))
    driver.settle(*clients)
    assert driver.group.assignor == "range"
    assert [len(client.owned) for client in clients] == [4, 4, 2]


def test_a_group_is_loaded_as_it_was_stored() -> None:
    driver = ConsumerDriver()
    first, second = Client("a", instance_id="i"), Client("b", topics=None, pattern="o.*")
    driver.settle(first, second)
    driver.send(Client("c"))
    driver.send(first)
    records = driver.group.changed_records()
    for record in records:
        driver.group.note_stored(record)
    assert driver.group.changed_records() == []
    assert len(records) == 1
    loaded = ConsumerGroup("g", driver.config, driver.topics)
    for data in map(encode, [ConsumerGroupChanged("g", (MemberRemoved("none"),)), *records]):
        stored = decode(data)
        assert isinstance(stored, ConsumerGroupChanged)
        loaded.note_stored(stored)
    loaded.restore(driver.now_ms)
    assert loaded.members == driver.group.members
    assert (loaded.epoch, loaded.state) == (driver.group.epoch, driver.group.state)
    driver.group = loaded
    epoch = loaded.epoch
    driver.settle(first, second)
    assert driver.group.epoch == epoch, "nothing changed while it was away"
    driver.advance(45_000)
    assert not driver.group.members
    (changed,) = driver.group.changed_records()
    kinds = [type(change) for change in changed.changes]
    assert kinds == [MemberRemoved, MemberRemoved, MemberRemoved, ConsumerGroupImage]


def test_a_join_looks_once_at_all_topics_and_other_heartbeats_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With patterns a look asks for the rights of each member on each topic."""
    looks: list[str] = []

    def matching(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
        looks.append(pattern)
        return matching_topics(pattern, names)

    monkeypatch.setattr(consumer_targets, "matching_topics", matching)
    driver = ConsumerDriver()
    first, second = Client("a", topics=None, pattern="o.*"), Client("b")
    driver.send(first)
    driver.send(second)
    assert len(looks) == 2
    driver.settle(first, second)
    del driver.group._sees["b"]  # as after a change of the coordinator
    driver.send(second)
    assert len(looks) == 2

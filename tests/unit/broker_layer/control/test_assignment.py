"""Assignment of leaders: for new topics, and for dead, leaving, returning and new brokers."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker_layer.control.assignment import (
    Loads,
    Plan,
    apply_moves,
    plan_balance,
    plan_leaders,
    plan_new_epochs,
    plan_preferred,
    spread,
)
from broker_layer.handlers import grouped
from metadata.topics.topic import NO_LEADER, TopicId, TopicRecord, new_topic


def _topic(name: str, *leaders: int) -> TopicRecord:
    return new_topic(name, TopicId(name.encode().ljust(16, b"-")), 0, leaders, {})


def _applied(topics: Sequence[TopicRecord], plan: Plan) -> list[TopicRecord]:
    moves = grouped((move.topic, move) for move in plan)
    return [apply_moves(topic, moves.get(topic.name, [])) or topic for topic in topics]


def _leaders(topics: Sequence[TopicRecord]) -> list[int]:
    return [partition.leader for topic in topics for partition in topic.partitions]


def test_new_partitions_go_round_robin_from_the_least_loaded_broker() -> None:
    loads = Loads.of([_topic("a", 1, 1, 2)], [1, 2, 3])

    assert spread(4, loads) == [3, 2, 1, 3]
    assert loads.counts == {1: 3, 2: 2, 3: 2}


def test_many_topics_of_one_partition_are_spread_too() -> None:
    loads = Loads.of([], [4, 5, 6])

    assert Counter(spread(1, loads)[0] for _ in range(30)) == {4: 10, 5: 10, 6: 10}


def test_partitions_of_a_dead_broker_are_spread_over_live_brokers_in_one_pass() -> None:
    topics = [_topic("a", 1, 2, 3, 1, 1, 1)]

    after = _applied(topics, plan_leaders(topics, [2, 3], [2, 3]))

    assert sorted(_leaders(after)) == [2, 2, 2, 3, 3, 3]
    assert after[0].partitions[0].leader_epoch == topics[0].partitions[0].leader_epoch + 1
    assert after[0].partitions[1] == topics[0].partitions[1]
    assert after[0].partitions[0].preferred == 1


def test_a_leaving_broker_keeps_only_partitions_that_no_other_can_lead() -> None:
    topics = [_topic("a", 1, 2)]

    assert _leaders(_applied(topics, plan_leaders(topics, [2], [1, 2]))) == [2, 2]
    assert plan_leaders(topics, [], [1, 2]) == []


def test_leaderless_partitions_get_a_leader_when_a_broker_joins() -> None:
    topics = [_topic("a", 1)]

    without = _applied(topics, plan_leaders(topics, [], []))
    assert _leaders(without) == [NO_LEADER]
    assert plan_leaders(without, [], []) == []

    again = _applied(without, plan_leaders(without, [7], [7]))
    assert _leaders(again) == [7]
    assert again[0].partitions[0].leader_epoch == topics[0].partitions[0].leader_epoch + 2


def test_leaderless_partitions_go_to_their_preferred_broker_when_it_is_back() -> None:
    topics = [_topic("a", 1, 2)]
    topics = _applied(topics, plan_leaders(topics, [], []))

    assert _leaders(_applied(topics, plan_leaders(topics, [1, 2, 3], [1, 2, 3]))) == [1, 2]


def test_a_restarted_broker_gets_new_epochs_for_all_its_partitions() -> None:
    topics = [_topic("a", 1, 2), _topic("b", 1)]

    after = _applied(topics, plan_new_epochs(topics, 1))

    assert _leaders(after) == [1, 2, 1]
    assert [partition.leader_epoch for topic in after for partition in topic.partitions] == [
        1,
        0,
        1,
    ]


def test_partitions_return_to_settled_preferred_brokers_some_at_a_time() -> None:
    topics = [_topic("a", 1, 1, 1, 2)]
    topics = _applied(topics, plan_leaders(topics, [2], [2]))

    assert plan_preferred(topics, [2], 10) == []
    some = _applied(topics, plan_preferred(topics, [1, 2], 2))
    assert _leaders(some) == [1, 1, 2, 2]
    assert _leaders(_applied(some, plan_preferred(some, [1, 2], 2))) == [1, 1, 1, 2]


def test_a_new_broker_gets_its_share_permanently() -> None:
    topics = [_topic("a", *([1, 2] * 15))]

    after = _applied(topics, plan_balance(topics, [1, 2, 3], 100))

    assert Counter(_leaders(after)) == {1: 10, 2: 10, 3: 10}
    assert plan_balance(after, [1, 2, 3], 100) == []
    assert plan_preferred(after, [1, 2, 3], 100) == []


def test_small_differences_are_not_balanced() -> None:
    assert plan_balance([_topic("a", 1, 1, 2)], [1, 2], 10) == []
    assert plan_balance([_topic("a", 1, 1)], [1], 10) == []


def test_a_move_applies_only_to_the_leadership_that_was_seen() -> None:
    topic = _topic("a", 1, 2)
    plan = plan_leaders([topic], [2], [2])

    assert apply_moves(topic.with_leaders({0: 1}), list(plan)) is None
    assert apply_moves(topic.with_deletion(), list(plan)) is None


def test_deleted_topics_are_not_planned_for() -> None:
    assert plan_leaders([_topic("a", 1).with_deletion()], [2], [2]) == []


@given(
    leaders=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    alive=st.lists(st.integers(0, 5), unique=True, max_size=6),
)
def test_every_plan_is_complete_and_stable(leaders: list[int], alive: list[int]) -> None:
    topics = [_topic("a", *leaders[: len(leaders) // 2 + 1]), _topic("b", *leaders)]

    after = _applied(topics, plan_leaders(topics, alive, alive))

    assert all(leader in alive or not alive for leader in _leaders(after))
    assert plan_leaders(after, alive, alive) == []
    for _ in range(len(leaders) * 2):
        topics, after = after, _applied(after, plan_preferred(after, alive, 7))
        if topics == after:
            break
    for topic in after:
        assert all(p.leader == p.preferred for p in topic.partitions if p.preferred in alive)
    balanced = _applied(after, plan_balance(after, alive, 1000))
    assert plan_balance(balanced, alive, 1000) == []


def test_brokers_that_left_are_no_longer_chosen() -> None:
    loads = Loads({1: 0, 2: 5, 3: 6})
    loads.keep([2, 3, 4])
    assert loads.counts == {2: 5, 3: 6}
    assert loads.take_least(1) == 2

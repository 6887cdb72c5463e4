"""The server-side assignors keep their invariants for any subscriptions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from broker_layer.groups.consumer_targets import (
    Assignor,
    SubscribedMember,
    Targets,
    assign_range,
    assign_uniform,
)
from broker_layer.groups.values import Partition

TOPICS = [bytes([number]) * 16 for number in range(4)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))
SUBSCRIPTIONS = st.lists(st.lists(st.sampled_from(TOPICS), unique=True), max_size=7)


def _members(
    subscriptions: list[list[bytes]], targets: Targets | None = None
) -> list[SubscribedMember]:
    return [
        SubscribedMember(f"m{n}", f"m{n}", tuple(topics), (targets or {}).get(f"m{n}", ()))
        for n, topics in enumerate(subscriptions)
    ]


def _check(targets: Targets, members: list[SubscribedMember], counts: dict[bytes, int]) -> None:
    given_out = [each for target in targets.values() for each in target]
    assert len(given_out) == len(set(given_out)), "each partition once"
    wanted = {topic_id for member in members for topic_id in member.topic_ids}
    assert set(given_out) == {
        (topic_id, partition)
        for topic_id, count in counts.items()
        if topic_id in wanted
        for partition in range(count)
    }
    for member in members:
        assert all(topic_id in member.topic_ids for topic_id, _ in targets[member.member_id])


@given(SUBSCRIPTIONS, COUNTS)
def test_range_assigns_each_partition_once(
    subscriptions: list[list[bytes]], counts: dict[bytes, int]
) -> None:
    members = _members(subscriptions)
    _check(assign_range(members, counts), members, counts)


@given(SUBSCRIPTIONS, SUBSCRIPTIONS, COUNTS, COUNTS)
def test_uniform_assigns_each_partition_once_even_after_changes(
    before: list[list[bytes]],
    after: list[list[bytes]],
    counts_before: dict[bytes, int],
    counts_after: dict[bytes, int],
) -> None:
    first = assign_uniform(_members(before), counts_before)
    members = _members(after, first)
    _check(assign_uniform(members, counts_after), members, counts_after)


@given(st.integers(1, 8), st.integers(1, 8), COUNTS)
@settings(max_examples=60)
def test_uniform_is_balanced_and_moves_little(
    count_before: int, count_after: int, counts: dict[bytes, int]
) -> None:
    topics = list(counts)
    first = assign_uniform(_members([topics] * count_before), counts)
    members = _members([topics] * count_after, first)
    second = assign_uniform(members, counts)
    sizes = [len(each) for each in second.values()]
    assert max(sizes) - min(sizes) <= 1
    if count_before == count_after:
        assert second == first
    elif count_after > count_before:
        newcomers = range(count_before, count_after)
        moved = sum(len(second[f"m{n}"]) for n in newcomers)
        kept = sum(len(set(second[f"m{n}"]) & set(first[f"m{n}"])) for n in range(count_before))
        assert kept + moved == sum(sizes), "only newcomers are given something"


def test_a_static_member_keeps_its_range_with_a_new_id() -> None:
    counts = {TOPICS[0]: 4}
    old = [SubscribedMember(each, key, (TOPICS[0],), ()) for each, key in [("z", "1"), ("a", "2")]]
    assert assign_range(old, counts)["z"] == ((TOPICS[0], 0), (TOPICS[0], 1))


A, B = TOPICS[:2]


def _partitions(topic_id: bytes, *numbers: int) -> tuple[Partition, ...]:
    return tuple((topic_id, number) for number in numbers)


def _sizes(targets: Targets) -> list[int]:
    return [len(target) for target in targets.values()]


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
def test_a_topic_without_subscribers_is_not_assigned(assign: Assignor) -> None:
    counts = {A: 3, B: 2}
    assert assign(_members([[B]]), counts) == {"m0": _partitions(B, 0, 1)}
    assert assign(_members([[]]), counts) == {"m0": ()}
    assert assign([], counts) == {}


def test_range_gives_the_remainder_to_the_first_members() -> None:
    assert assign_range(_members([[A], [A], [B], [A]]), {A: 5, B: 1}) == {
        "m0": _partitions(A, 0, 1),
        "m1": _partitions(A, 2, 3),
        "m2": _partitions(B, 0),
        "m3": _partitions(A, 4),
    }


def test_uniform_drops_earlier_partitions_that_are_gone() -> None:
    earlier = {"m0": _partitions(A, 0, 2) + _partitions(B, 0)}
    assert assign_uniform(_members([[A, B]], earlier), {A: 2}) == {"m0": _partitions(A, 0, 1)}


def test_uniform_drops_earlier_partitions_of_topics_that_a_member_no_longer_reads() -> None:
    earlier = {"m0": _partitions(A, 0), "m1": _partitions(B, 0)}
    assert assign_uniform(_members([[B], [A]], earlier), {A: 1, B: 1}) == {
        "m0": _partitions(B, 0),
        "m1": _partitions(A, 0),
    }


def test_uniform_resolves_earlier_targets_that_overlap() -> None:
    earlier = {"m0": _partitions(A, 0, 1), "m1": _partitions(A, 1, 2)}
    assert assign_uniform(_members([[A], [A]], earlier), {A: 4}) == {
        "m0": _partitions(A, 0, 1),
        "m1": _partitions(A, 2, 3),
    }


def test_uniform_keeps_earlier_partitions_in_any_order() -> None:
    earlier = {"m0": _partitions(A, 1, 3), "m1": _partitions(A, 0, 2)}
    assert assign_uniform(_members([[A], [A]], earlier), {A: 4}) == earlier


def test_uniform_gives_free_partitions_one_by_one_to_the_member_with_the_fewest() -> None:
    """So the partitions of each topic are spread over its subscribers."""
    assert assign_uniform(_members([[A, B]] * 2), {A: 2, B: 2}) == {
        "m0": _partitions(A, 0) + _partitions(B, 0),
        "m1": _partitions(A, 1) + _partitions(B, 1),
    }
    earlier = {"m0": _partitions(A, 0, 1, 2)}
    assert assign_uniform(_members([[A], [A], [A]], earlier), {A: 8}) == {
        "m0": _partitions(A, 0, 1, 2),
        "m1": _partitions(A, 3, 5, 7),
        "m2": _partitions(A, 4, 6),
    }


def test_uniform_counts_what_a_member_has_before_it_gives_it_more() -> None:
    earlier = {"m0": _partitions(A, 0, 1, 2, 3)}
    assert assign_uniform(_members([[A], [A]], earlier), {A: 9}) == {
        "m0": _partitions(A, 0, 1, 2, 3, 8),
        "m1": _partitions(A, 4, 5, 6, 7),
    }


@pytest.mark.parametrize(("count", "expected"), [(1, [1, 0]), (2, [1, 1]), (5, [3, 2])])
def test_uniform_takes_from_the_member_with_the_most(count: int, expected: list[int]) -> None:
    earlier = {"m0": _partitions(A, *range(count))}
    members = _members([[A], [A]], earlier)
    targets = assign_uniform(members, {A: count})
    assert _sizes(targets) == expected
    assert targets["m0"] == earlier["m0"][: expected[0]], "it keeps the first ones"


def test_uniform_takes_nothing_for_a_difference_of_one() -> None:
    """A third member has few, but reads another topic."""
    earlier = {"m0": _partitions(A, 0, 1, 2), "m1": _partitions(A, 3, 4)}
    targets = assign_uniform(_members([[A], [A], [B]], earlier), {A: 5, B: 1})
    assert targets == {**earlier, "m2": _partitions(B, 0)}


def test_uniform_balances_each_topic_among_its_subscribers() -> None:
    earlier = {"m0": _partitions(A, 0, 1, 2, 3, 4, 5)}
    targets = assign_uniform(_members([[A, B], [A], [B]], earlier), {A: 6, B: 2})
    assert _sizes(targets) == [3, 3, 2]


def test_uniform_moves_partitions_of_members_with_fewer_if_the_first_cannot_give() -> None:
    earlier = {"m0": _partitions(A, *range(6)), "m1": _partitions(B, 0, 1, 2)}
    targets = assign_uniform(_members([[A], [B], [B]], earlier), {A: 6, B: 3})
    assert _sizes(targets) == [6, 2, 1]


class CountedName(str):
    """A member's id that counts its look-ups."""

    __slots__ = ()
    looks = 0

    @override
    def __hash__(self) -> int:
        CountedName.looks += 1
        return super().__hash__()


def test_a_member_of_a_group_with_many_topics_joins_without_a_look_at_each_for_each_move() -> None:
    ids = [b"%016d" % number for number in range(200)]
    counts = dict.fromkeys(ids, 4)
    names = [CountedName(f"m{number}") for number in range(20)]
    targets: Targets = {}
    for joined in (19, 20):
        CountedName.looks = 0
        members = [
            SubscribedMember(name, name, tuple(ids), targets.get(name, ()))
            for name in names[:joined]
        ]
        targets = assign_uniform(members, counts)
    moved = len(targets[names[-1]])
    assert moved == 40
    assert CountedName.looks < 5 * len(names) * len(ids), "not for each of the 40 moves"

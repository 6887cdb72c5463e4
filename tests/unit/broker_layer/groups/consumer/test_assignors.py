"""The server-side assignors keep their invariants for any subscriptions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_layer.groups.consumer.assignors import (
    SubscribedMember,
    Targets,
    assign_range,
    assign_uniform,
)

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

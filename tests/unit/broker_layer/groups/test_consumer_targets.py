"""Topics that members of a KIP-848 group read, and which heartbeats are complete."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from broker_layer.groups import consumer_targets
from broker_layer.groups.consumer_targets import Sees, Subscriptions
from broker_layer.groups.values import (
    JOIN_EPOCH,
    ConsumerMember,
    HeartbeatRequested,
)


class Topics:
    """Topics by name: id and partition count. A count of 0 is of a topic that is being made."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.is_complete = True

    def topic_id_of(self, name: str) -> bytes | None:
        return name.encode() if name in self.counts else None

    def topic_name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.decode()
        return name if name in self.counts else None

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def topic_names(self) -> Iterable[str]:
        return list(self.counts)

    def on_topics_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return callback


def member(name: str, *topics: str, pattern: str = "") -> ConsumerMember:
    return ConsumerMember(name, topics=topics, pattern=pattern)


def seen_by(members: Iterable[ConsumerMember]) -> dict[str, Sees]:
    return {consumer_member.member_id: lambda _: True for consumer_member in members}


def test_only_topics_with_partitions_are_read() -> None:
    found = Subscriptions.of([member("m", "a", "b", "gone")], Topics(a=2, b=0, c=1), {})
    assert found.topics == {"a": (b"a", 2)}
    assert found.targets([member("m", "a", "b", "gone")], "range") == {"m": ((b"a", 0), (b"a", 1))}


def test_topics_of_a_pattern_are_read_beside_named_ones() -> None:
    members = [member("m", "x", pattern="a.*"), member("n", pattern="a.*"), member("o", "a1")]
    found = Subscriptions.of(members, Topics(a1=1, a2=1, x=1, y=1), seen_by(members))
    assert sorted(found.topics) == ["a1", "a2", "x"]
    assert found.names_of_members == {"m": ("a1", "a2"), "n": ("a1", "a2")}
    targets = found.targets(members, "uniform")
    assert sorted(each for target in targets.values() for each in target) == [
        (b"a1", 0),
        (b"a2", 0),
        (b"x", 0),
    ]


def test_instance_ids_order_static_members() -> None:
    """Member ids order the others, so a static member keeps its range under a new id."""
    members = [
        replace(member("x", "a"), instance_id="2"),
        replace(member("z", "a"), instance_id="1"),
        member("3", "a"),
    ]
    found = Subscriptions.of(members, Topics(a=3), seen_by(members))
    expected = {"z": ((b"a", 0),), "x": ((b"a", 1),), "3": ((b"a", 2),)}
    assert found.targets(members, "range") == expected
    assert found.targets([replace(members[1], member_id="new"), members[0]], "range") == {
        "new": ((b"a", 0), (b"a", 1)),
        "x": ((b"a", 2),),
    }


def test_a_member_without_topics_has_no_targets() -> None:
    members = [member("m"), member("n", "a")]
    found = Subscriptions.of(members, Topics(a=1), seen_by(members))
    assert found.targets(members, "uniform") == {"m": (), "n": ((b"a", 0),)}


def test_each_pattern_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of members with one pattern must not match thousands of times."""
    asked: list[str] = []

    def matching(pattern: str, _names: Iterable[str]) -> tuple[str, ...]:
        asked.append(pattern)
        return ()

    monkeypatch.setattr(consumer_targets, "matching_topics", matching)
    members = [member(str(i), "x", pattern=f"a{i % 2}") for i in range(6)]
    Subscriptions.of([*members, member("none", "x")], Topics(x=1), {})
    assert asked == ["a0", "a1"]


def test_the_digest_follows_the_subscribed_topics() -> None:
    members = [member("m", "a")]
    digest = Subscriptions.of(members, Topics(a=2), seen_by(members)).digest()
    assert Subscriptions.of(members, Topics(a=2, b=3), seen_by(members)).digest() == digest
    assert Subscriptions.of(members, Topics(a=3), seen_by(members)).digest() != digest
    assert Subscriptions.of(members, Topics(), seen_by(members)).digest() != digest


FULL = HeartbeatRequested("m", 5, None, None, "", "", 1000, ("a",), None, None, ())


@pytest.mark.parametrize(
    ("heartbeat", "is_full"),
    [
        (FULL, True),
        (replace(FULL, topics=None, pattern="a.*"), True),
        (replace(FULL, topics=None), False),
        (replace(FULL, rebalance_timeout_ms=None), False),
        (replace(FULL, owned=None), False),
        (replace(FULL, topics=None, owned=None, epoch=JOIN_EPOCH), True),
    ],
)
def test_a_full_heartbeat_has_every_field_or_joins(
    heartbeat: HeartbeatRequested, is_full: bool
) -> None:
    assert heartbeat.is_full is is_full


def test_a_pattern_selects_what_its_member_may_see() -> None:
    members = [member("m", pattern=".*"), member("n", pattern=".*")]
    sees: dict[str, Sees] = {"m": lambda name: name == "a", "n": lambda name: name != "a"}
    found = Subscriptions.of(members, Topics(a=1, b=1, c=1), sees)
    assert found.names_of_members == {"m": ("a",), "n": ("b", "c")}
    targets = found.targets(members, "uniform")
    assert targets == {"m": ((b"a", 0),), "n": ((b"b", 0), (b"c", 0))}


def test_a_member_that_was_not_heard_keeps_what_it_has() -> None:
    silent = replace(member("m", pattern=".*"), target=((b"a", 0),))
    found = Subscriptions.of([silent], Topics(a=1, b=1), {})
    assert found.names_of_members == {"m": ("a",)}

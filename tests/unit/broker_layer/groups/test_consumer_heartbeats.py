"""Fields of heartbeats of a KIP-848 group, their answers, and what a group looks up for them."""

from dataclasses import replace

import pytest

from broker_layer.groups.consumer_group import ConsumerGroup
from broker_layer.groups.values import (
    ConsumerMember,
    GroupsConfig,
    HeartbeatRequested,
    HeartbeatResult,
    Moment,
    Partition,
)
from broker_layer.kafka.error_codes import ErrorCode
from quire.server.overriding import override
from tests.support.broker_layer.consumer_driver import Client, ConsumerDriver, partitions_of
from tests.support.broker_layer.group_world import MemoryTopics

NONE, FENCED = ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH
JOIN = HeartbeatRequested(
    member_id="a",
    epoch=0,
    instance_id=None,
    rack_id="rack",
    client_id="client",
    client_host="/host",
    rebalance_timeout_ms=60_000,
    topics=("other", "orders"),
    pattern="o.*",
    assignor="range",
    owned=(),
)
BEAT = HeartbeatRequested("a", 1, None, None, "client", "/host", None, None, None, None, None)


def beat(driver: ConsumerDriver, event: HeartbeatRequested) -> HeartbeatResult:
    return driver.group.heartbeat(event, Moment(driver.now_ms, driver.now_ms))


def joined() -> ConsumerDriver:
    """Return the driver of a group with the member of `JOIN`."""
    driver = ConsumerDriver()
    assert beat(driver, JOIN).error is NONE
    return driver


def fields(member: ConsumerMember) -> dict[str, object]:
    """Return the fields that heartbeats set."""
    return {
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "topics": member.topics,
        "pattern": member.pattern,
        "assignor": member.assignor,
    }


JOINED = {
    "rack_id": "rack",
    "client_id": "client",
    "client_host": "/host",
    "rebalance_timeout_ms": 60_000,
    "topics": ("orders", "other"),
    "pattern": "o.*",
    "assignor": "range",
}


def test_a_heartbeat_without_fields_changes_none() -> None:
    driver = joined()
    assert fields(driver.group.members["a"]) == JOINED
    assert beat(driver, BEAT).error is NONE
    assert fields(driver.group.members["a"]) == JOINED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rack_id", "elsewhere"),
        ("client_id", "renamed"),
        ("client_host", "/moved"),
        ("rebalance_timeout_ms", 0),
        ("topics", ()),
        ("pattern", ""),
        ("assignor", "uniform"),
    ],
)
def test_a_heartbeat_changes_the_fields_that_it_has(name: str, value: object) -> None:
    driver = joined()
    changes: dict[str, object] = {name: value}
    assert beat(driver, replace(BEAT, **changes)).error is NONE  # type: ignore[arg-type]
    assert fields(driver.group.members["a"]) == JOINED | changes


def test_the_order_of_topics_is_no_change() -> None:
    driver = joined()
    beat(driver, replace(BEAT, topics=("orders", "other")))
    assert driver.group.epoch == 1


@pytest.mark.parametrize("changes", [{"topics": ("orders",)}, {"pattern": "or.*"}])
def test_another_subscription_advances_the_epoch(changes: dict[str, object]) -> None:
    driver = joined()
    beat(driver, replace(BEAT, **changes))  # type: ignore[arg-type]
    assert driver.group.epoch == 2


def test_a_member_that_reads_nothing_advances_the_epoch_too() -> None:
    driver = joined()
    result = beat(driver, replace(JOIN, member_id="b", topics=(), pattern=None))
    assert (result.error, result.epoch, result.assignment) == (NONE, 2, ())
    assert driver.group.epoch == 2


def test_a_full_heartbeat_is_answered_with_the_assignment() -> None:
    driver = joined()
    owned = driver.group.members["a"].assigned
    assert len(owned) == 9
    full = replace(BEAT, rebalance_timeout_ms=60_000, topics=("orders", "other"), owned=owned)
    assert beat(driver, full).assignment == owned
    assert beat(driver, replace(full, topics=None)).assignment is None, "it knows already"


def test_an_answer_has_no_text_or_assignment_after_a_refusal() -> None:
    driver = joined()
    refused = beat(driver, replace(BEAT, epoch=9))
    assert (refused.error, refused.assignment) == (FENCED, None)
    assert "its epoch is 1" in (refused.text or "")
    accepted = beat(driver, BEAT)
    assert (accepted.error, accepted.text, accepted.member_id) == (NONE, None, "a")


class TestRepeatedHeartbeats:
    """The answer with the new epoch was lost, so the member sends its previous epoch."""

    def advanced(self) -> tuple[ConsumerDriver, tuple[Partition, ...]]:
        """Return a group whose member advanced to epoch 2, and what the member owns."""
        driver = joined()
        beat(driver, replace(BEAT, topics=("orders",), pattern="", owned=()))
        owned = driver.group.members["a"].assigned
        assert (driver.group.members["a"].epoch, len(owned)) == (2, 6)
        return driver, owned

    @pytest.mark.parametrize("count", [0, 1, 6])
    def test_it_may_own_any_part_of_its_assignment(self, count: int) -> None:
        driver, owned = self.advanced()
        result = beat(driver, replace(BEAT, owned=owned[:count]))
        assert (result.error, result.epoch) == (NONE, 2)

    def test_it_may_not_own_anything_else(self) -> None:
        driver, owned = self.advanced()
        other = partitions_of(driver, "other", 0)
        assert beat(driver, replace(BEAT, owned=(*owned, *other))).error is FENCED
        assert beat(driver, replace(BEAT, owned=tuple(other))).error is FENCED

    def test_it_must_say_what_it_owns(self) -> None:
        driver, _ = self.advanced()
        assert beat(driver, BEAT).error is FENCED

    def test_an_older_epoch_is_fenced(self) -> None:
        driver, owned = self.advanced()
        beat(driver, replace(BEAT, epoch=2, topics=("orders", "other"), owned=owned))
        assert driver.group.members["a"].epoch == 3
        assert beat(driver, replace(BEAT, epoch=2, owned=owned)).error is NONE
        assert beat(driver, replace(BEAT, epoch=1, owned=owned)).error is FENCED
        assert beat(driver, replace(BEAT, epoch=4, owned=owned)).error is FENCED

    def test_a_second_answer_may_be_lost(self) -> None:
        driver = ConsumerDriver()
        first, second = Client("a"), Client("b")
        driver.settle(first, second)
        driver.change(first, ("other",))
        waiting = second.epoch
        driver.send(second, epoch=waiting)
        driver.send(first)
        driver.obey(first)
        driver.send(first)
        for _ in range(2):
            assert driver.send(second, epoch=waiting).error is NONE


class CountedTopics(MemoryTopics):
    """Topics that count how often an id is looked up."""

    lookups = 0

    @override
    def topic_id_of(self, name: str) -> bytes | None:
        self.lookups += 1
        return super().topic_id_of(name)


def test_topics_are_looked_up_only_after_a_change() -> None:
    topics = CountedTopics({"orders": 6, "other": 3})
    group = ConsumerGroup("g", GroupsConfig(), topics)
    group.heartbeat(JOIN, Moment(0, 0))
    seen = topics.lookups
    assert seen > 0
    group.heartbeat(BEAT, Moment(1, 1))
    assert topics.lookups == seen, "nothing changed"
    group.note_topics_changed()
    group.heartbeat(BEAT, Moment(2, 2))
    assert topics.lookups == seen + 2, "once for each topic"
    group.heartbeat(BEAT, Moment(3, 3))
    assert topics.lookups == seen + 2, "it knows them again"
    assert group.epoch == 1

"""Records of a KIP-848 group: what is stored after a change, and what a load brings back."""

from dataclasses import replace

import msgpack
import pytest

from broker_layer.groups.consumer_group import REVOCATION_MS_MIN, ConsumerGroup
from broker_layer.groups.records import decode, encode
from broker_layer.groups.values import (
    ConsumerChange,
    ConsumerGroupChanged,
    ConsumerGroupImage,
    GroupsConfig,
    MemberRemoved,
    MemberState,
    Moment,
)
from broker_layer.kafka.error_codes import ErrorCode
from metadata.errors import MetadataFormatError
from tests.support.broker_layer.consumer_driver import (
    REBALANCE_MS,
    Client,
    ConsumerDriver,
    partitions_of,
)


def store(driver: ConsumerDriver) -> list[ConsumerChange]:
    """Store what changed, and return the changes."""
    records = driver.group.changed_records()
    assert len(records) <= 1, "what belongs together is one record"
    for record in records:
        driver.group.note_stored(record)
    return [change for record in records for change in record.changes]


def stored(group: ConsumerGroup) -> list[ConsumerChange]:
    """Return the changes in the records of a snapshot."""
    return [change for record in group.stored_records() for change in record.changes]


def load(driver: ConsumerDriver, *changes: ConsumerChange) -> None:
    """Replace the group by one that is loaded from changes, by default from its snapshot."""
    loaded = ConsumerGroup("g", driver.config, driver.topics)
    for record in (
        [ConsumerGroupChanged("g", changes)] if changes else driver.group.stored_records()
    ):
        loaded.note_stored(record)
    loaded.restore(driver.now_ms)
    driver.group = loaded


def test_a_group_without_members_has_no_records() -> None:
    group = ConsumerDriver().group
    assert group.changed_records() == []
    assert stored(group) == []
    assert not group.is_stored


def test_a_first_member_is_stored_with_the_group() -> None:
    driver = ConsumerDriver()
    driver.send(Client("a"))
    image, member = driver.group.image(), driver.group.members["a"]
    assert not driver.group.is_stored
    assert store(driver) == [member, image]
    assert driver.group.is_stored
    assert driver.group.changed_records() == []
    assert stored(driver.group) == [image, member]


def test_only_what_changed_is_stored() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first)
    store(driver)
    driver.send(second)
    records = store(driver)
    targets = [driver.group.members[each] for each in ("a", "b")]
    assert records == [*targets, driver.group.image()], "both have another target"
    driver.send(first)
    assert store(driver) == [driver.group.members["a"]]
    driver.send(first)
    assert store(driver) == []
    driver.send(second, epoch=-1)
    assert store(driver) == [MemberRemoved("b"), driver.group.image()]
    assert store(driver) == []


def test_the_last_member_is_removed_from_the_log() -> None:
    driver = ConsumerDriver()
    client = Client("a")
    driver.settle(client)
    store(driver)
    driver.send(client, epoch=-1)
    records = store(driver)
    assert records == [MemberRemoved("a"), driver.group.image()]
    assert stored(driver.group) == [driver.group.image()]


def test_a_snapshot_has_what_is_stored_and_not_what_is_new() -> None:
    driver = ConsumerDriver()
    driver.settle(Client("a"))
    changes = store(driver)
    driver.send(Client("b"))
    assert stored(driver.group) == changes[::-1]


def test_a_loaded_group_is_stored_as_it_is() -> None:
    driver = ConsumerDriver()
    driver.settle(Client("a"), Client("b"))
    store(driver)
    before = driver.group
    load(driver)
    assert driver.group.members == before.members
    assert driver.group.image() == before.image()
    assert driver.group.is_stored
    assert driver.group.changed_records() == []
    assert stored(driver.group) == stored(before)


def test_a_removed_member_is_not_loaded() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first, second)
    records = store(driver)
    driver.send(first, epoch=-1)
    load(driver, *records, *store(driver))
    assert list(driver.group.members) == ["b"]
    assert driver.group.changed_records() == [], "its removal is in the log"
    driver.settle(second)
    assert list(second.owned) == partitions_of(driver, "orders", 0, 1, 2, 3, 4, 5)


def test_partitions_of_loaded_members_have_owners() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first)
    store(driver)
    load(driver)
    assert driver.send(second).assignment == (), "the first member owns everything"


def test_a_session_begins_with_the_load() -> None:
    driver = ConsumerDriver()
    driver.settle(Client("a"))
    store(driver)
    driver.now_ms += 40_000
    load(driver)
    assert driver.group.next_deadline_ms() == driver.now_ms + 45_000
    driver.advance(44_999)
    assert list(driver.group.members) == ["a"]
    driver.advance(1)
    assert not driver.group.members


def test_a_loaded_member_must_revoke_within_its_rebalance_timeout() -> None:
    driver = ConsumerDriver(config=GroupsConfig(consumer_session_timeout_ms=REBALANCE_MS * 10))
    lazy = Client("a", is_lazy=True)
    driver.settle(lazy)
    lazy.owned = lazy.wanted
    driver.send(Client("b"))
    driver.send(lazy)
    assert driver.group.members["a"].state is MemberState.UNREVOKED
    store(driver)
    load(driver)
    assert driver.group.next_deadline_ms() == driver.now_ms + REBALANCE_MS
    driver.advance(REBALANCE_MS)
    assert list(driver.group.members) == ["b"]


def test_a_removal_that_the_log_refuses_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.broker_layer.consumer_driver.REBALANCE_MS", 0)
    driver = ConsumerDriver()
    lazy = Client("a", is_lazy=True)
    driver.settle(lazy)
    lazy.owned = lazy.wanted
    driver.send(Client("b"))
    driver.send(lazy)
    store(driver)
    driver.now_ms = driver.group.next_deadline_ms()
    driver.group.on_time(Moment(driver.now_ms, driver.now_ms))
    driver.group.restore(driver.now_ms)
    assert sorted(driver.group.members) == ["a", "b"]
    assert driver.group.next_deadline_ms() == driver.now_ms + REVOCATION_MS_MIN


def test_a_loaded_group_sees_topics_that_changed_meanwhile() -> None:
    driver = ConsumerDriver()
    client = Client("a")
    driver.settle(client)
    store(driver)
    driver.topics.put("orders", 7)
    load(driver)
    assert driver.send(client).epoch == 2
    driver.settle(client)
    assert len(client.owned) == 7


def test_an_absent_static_member_that_had_to_revoke_stays_after_a_load() -> None:
    driver = ConsumerDriver(config=GroupsConfig(consumer_session_timeout_ms=REBALANCE_MS * 10))
    lazy = Client("a", instance_id="i", is_lazy=True)
    driver.settle(lazy)
    lazy.owned = lazy.wanted
    driver.send(Client("b"))
    driver.send(lazy)
    assert driver.send(lazy, epoch=-2).error is ErrorCode.NONE
    store(driver)
    load(driver)
    driver.advance(REBALANCE_MS)
    assert sorted(driver.group.members) == ["a", "b"], "only its session limits its absence"


def test_a_crash_in_a_heartbeat_leaves_no_partition_without_owner() -> None:
    """The coordinator dies after any number of the records of the heartbeat of a member."""
    for kept in range(2):
        driver = ConsumerDriver()
        first, second = Client("a"), Client("b")
        driver.settle(first, second)
        store(driver)
        before = stored(driver.group)
        driver.topics.put("orders", 12)
        driver.send(second)
        (record,) = driver.group.changed_records()
        load(driver, *before, *(record.changes if kept else ()))
        driver.settle(first, second)
        assert len(first.owned) + len(second.owned) == 12


def test_a_refused_change_is_undone() -> None:
    driver = ConsumerDriver()
    first = Client("a")
    driver.settle(first)
    store(driver)
    before = driver.group.image(), dict(driver.group.members)
    driver.send(Client("b"))
    driver.group.restore(driver.now_ms)
    assert (driver.group.image(), driver.group.members) == before
    assert driver.group.changed_records() == []
    driver.send(first, epoch=-1)
    driver.group.restore(driver.now_ms)
    assert (driver.group.image(), driver.group.members) == before
    driver.advance(44_999)
    assert list(driver.group.members) == ["a"], "its session began again"
    driver.advance(1)
    assert not driver.group.members


def test_a_partition_with_two_stored_owners_does_not_prevent_the_load() -> None:
    """Only a damaged log has this. The member in the older epoch must join again."""
    driver = ConsumerDriver()
    first = Client("a")
    driver.settle(first)
    store(driver)
    image, owner = driver.group.image(), driver.group.members["a"]
    older = replace(owner, member_id="b", epoch=owner.epoch - 1)
    load(driver, image, older, owner)
    assert list(driver.group.members) == ["a"]
    assert store(driver) == [MemberRemoved("b"), driver.group.image()]
    driver.settle(first, Client("b"))
    assert driver.group.state == "Stable"


@pytest.mark.parametrize("changes", [7, [7], [[3, 5]], [[4, "m"]], [["3", "m"]], [[3, "m", 0]]])
def test_what_is_no_change_of_a_group_is_refused(changes: object) -> None:
    whole = [1, 8, "g", [[3, "m"], [1, 5, 4, b"d", 9]]]
    expected = ConsumerGroupChanged("g", (MemberRemoved("m"), ConsumerGroupImage(5, 4, b"d", 9)))
    assert decode(msgpack.packb(whole)) == expected
    assert msgpack.unpackb(encode(expected)) == whole
    with pytest.raises(MetadataFormatError):
        decode(msgpack.packb([*whole[:3], changes]))

"""Records of a KIP-848 group: what is stored after a change, and what a load brings back."""

from broker_layer.groups.config import GroupsConfig
from broker_layer.groups.consumer.consumer_group import ConsumerGroup
from broker_layer.groups.consumer.consumer_values import (
    ConsumerGroupImage,
    ConsumerRecord,
    MemberRemoved,
    MemberState,
    MemberStored,
)
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.consumer_driver import (
    REBALANCE_MS,
    Client,
    ConsumerDriver,
    partitions_of,
)


def store(driver: ConsumerDriver) -> list[ConsumerRecord]:
    """Store what changed, and return the records."""
    records = driver.group.changed_records()
    for record in records:
        driver.group.note_stored(record)
    return records


def load(driver: ConsumerDriver, *records: ConsumerRecord) -> None:
    """Replace the group by one that is loaded from records, by default from its snapshot."""
    loaded = ConsumerGroup("g", driver.config, driver.topics)
    for record in records or driver.group.stored_records():
        match record:
            case ConsumerGroupImage():
                loaded.load_image(record)
            case MemberStored(_, member):
                loaded.load_member(member)
            case MemberRemoved(_, member_id):
                loaded.unload_member(member_id)
    loaded.finish_load(driver.now_ms)
    driver.group = loaded


def test_a_group_without_members_has_no_records() -> None:
    group = ConsumerDriver().group
    assert group.changed_records() == []
    assert list(group.stored_records()) == []
    assert not group.is_stored


def test_a_first_member_is_stored_with_the_group() -> None:
    driver = ConsumerDriver()
    driver.send(Client("a"))
    expected = [driver.group.image(), MemberStored("g", driver.group.members["a"])]
    assert not driver.group.is_stored
    assert store(driver) == expected
    assert driver.group.is_stored
    assert driver.group.changed_records() == []
    assert list(driver.group.stored_records()) == expected


def test_only_what_changed_is_stored() -> None:
    driver = ConsumerDriver()
    first, second = Client("a"), Client("b")
    driver.settle(first)
    store(driver)
    driver.send(second)
    records = store(driver)
    targets = [MemberStored("g", driver.group.members[each]) for each in ("a", "b")]
    assert records == [driver.group.image(), *targets], "both have another target"
    driver.send(first)
    assert store(driver) == [MemberStored("g", driver.group.members["a"])]
    driver.send(first)
    assert store(driver) == []
    driver.send(second, epoch=-1)
    assert store(driver) == [driver.group.image(), MemberRemoved("g", "b")]
    assert store(driver) == []


def test_the_last_member_is_removed_from_the_log() -> None:
    driver = ConsumerDriver()
    client = Client("a")
    driver.settle(client)
    store(driver)
    driver.send(client, epoch=-1)
    records = store(driver)
    assert records == [driver.group.image(), MemberRemoved("g", "a")]
    assert list(driver.group.stored_records()) == [driver.group.image()]


def test_a_snapshot_has_what_is_stored_and_not_what_is_new() -> None:
    driver = ConsumerDriver()
    driver.settle(Client("a"))
    stored = store(driver)
    driver.send(Client("b"))
    assert list(driver.group.stored_records()) == stored


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
    assert list(driver.group.stored_records()) == list(before.stored_records())


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

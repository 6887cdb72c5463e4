"""Values of topics: changes, stored form, and invalid bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import (
    InvalidTopicNameError,
    MetadataFormatError,
    TooManyPartitionsError,
    ValueTooLargeError,
)
from metadata.ids import UpdateToken
from metadata.topics.topic import (
    BROKER_ID_MAX,
    CONFIG_BYTES_MAX,
    LEADER_EPOCH_MAX,
    NO_LEADER,
    PARTITIONS_MAX,
    TOPIC_CODEC,
    PartitionLeadership,
    TopicId,
    TopicRecord,
    check_topic_name,
    new_topic,
    pack_topic,
)

TOPIC_ID = TopicId(b"i" * 16)
NATURALS = st.integers(0, 2**63 - 1)

leaderships = st.builds(
    PartitionLeadership,
    preferred=st.integers(0, BROKER_ID_MAX),
    leader=st.integers(NO_LEADER, BROKER_ID_MAX),
    leader_epoch=st.integers(0, LEADER_EPOCH_MAX),
)
records = st.builds(
    TopicRecord,
    name=st.text(max_size=20),
    topic_id=st.binary(min_size=16, max_size=16).map(TopicId),
    created_ms=NATURALS,
    partitions=st.lists(leaderships, max_size=5).map(tuple),
    configs=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    is_internal=st.booleans(),
    is_deleted=st.booleans(),
    epoch_floor=st.integers(-1, LEADER_EPOCH_MAX),
    token=st.binary(min_size=16, max_size=16).map(UpdateToken),
)


def topic(*leaders: int) -> TopicRecord:
    return new_topic("orders", TOPIC_ID, 1_000, leaders, {"retention.ms": "1"})


def epochs(record: TopicRecord) -> list[int]:
    return [partition.leader_epoch for partition in record.partitions]


@given(records)
def test_a_topic_round_trips(record: TopicRecord) -> None:
    assert TOPIC_CODEC.unpack("/a", pack_topic("/a", record)) == record


@given(st.binary(max_size=60))
def test_other_bytes_are_a_format_error(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        TOPIC_CODEC.unpack("/a", value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\xc4\x10" + b"i" * 16, b"\xc4\x0f" + b"i" * 15),  # a topic id of 15 bytes
        (b"\x93\x05\x05\x00", b"\x92\x05\x05"),  # a partition of two fields
        (b"\x93\x05\x05\x00", b"\x93\x05\xfe\x00"),  # led by broker -2
        (b"\xa1\x31", b"\x01"),  # a config that is not text
        (b"\xc4\x10" + bytes(16), b"\xc4\x01\x00"),  # a token of one byte
    ],
)
def test_a_field_out_of_range_is_a_format_error(old: bytes, new: bytes) -> None:
    value = pack_topic("/a", topic(5))
    assert old in value
    with pytest.raises(MetadataFormatError):
        TOPIC_CODEC.unpack("/a", value.replace(old, new))


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_names_of_topics(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n"])
def test_invalid_topic_names(name: str) -> None:
    with pytest.raises(InvalidTopicNameError):
        check_topic_name(name)


def test_every_leader_change_begins_an_epoch() -> None:
    record = topic(1, 2, 3).with_leaders({1: 3}).with_leaders({0: NO_LEADER, 1: 3})
    assert record.partitions == (
        PartitionLeadership(1, NO_LEADER, 1),
        PartitionLeadership(2, 3, 2),
        PartitionLeadership(3, 3, 0),
    )
    moved = record.with_preferred({0: 7})
    assert moved.partitions[0] == PartitionLeadership(7, NO_LEADER, 1)


def test_added_partitions_begin_with_the_first_epoch() -> None:
    record = topic(1).above(9).with_partitions((2, 3))
    assert [partition.leader for partition in record.partitions] == [1, 2, 3]
    assert epochs(record) == [10, 10, 10]


def test_configs_are_replaced_completely() -> None:
    assert dict(topic(1).with_configs({"a": "b"}).configs) == {"a": "b"}


def test_a_topic_begins_above_the_epochs_of_its_predecessor() -> None:
    old = topic(1, 2).with_leaders({1: 2}).with_leaders({1: 1}).with_deletion()
    assert (old.is_tombstone, len(old.partitions)) == (False, 2)
    tombstone = old.as_tombstone()
    assert (tombstone.is_tombstone, tombstone.epoch_floor) == (True, 2)
    assert dict(tombstone.configs) == {}
    again = topic(1, 1).above(tombstone.epoch_floor)
    assert epochs(again) == [3, 3]
    assert again.above(1) == again
    assert again.with_deletion().as_tombstone().epoch_floor == 3


def test_a_topic_that_never_had_partitions_keeps_its_floor() -> None:
    assert topic().above(4).with_deletion().as_tombstone().epoch_floor == 4


def test_the_largest_topic_is_far_below_the_limit_of_a_value() -> None:
    worst = [PartitionLeadership(BROKER_ID_MAX, BROKER_ID_MAX, LEADER_EPOCH_MAX)] * PARTITIONS_MAX
    record = TopicRecord("x" * 249, TOPIC_ID, 2**62, tuple(worst), {"c": "v" * 65_000})
    value = pack_topic("/a", record)
    assert len(value) < 300_000
    assert TOPIC_CODEC.unpack("/a", value) == record


def test_a_topic_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TooManyPartitionsError):
        topic(*[1] * PARTITIONS_MAX).with_partitions((1,))
    with pytest.raises(ValueTooLargeError):
        pack_topic("/a", topic(1).with_configs({"c": "v" * CONFIG_BYTES_MAX}))


def test_only_a_deleted_topic_without_partitions_is_a_tombstone() -> None:
    assert not topic().is_tombstone
    assert not topic(1).with_deletion().is_tombstone
    assert topic(1).with_deletion().as_tombstone().is_tombstone


def test_the_largest_topic() -> None:
    full = topic(*[1] * (PARTITIONS_MAX - 1)).with_partitions([2])
    assert len(full.partitions) == PARTITIONS_MAX
    with pytest.raises(TooManyPartitionsError):
        full.with_partitions([2])
    room = CONFIG_BYTES_MAX - len("a")
    largest = topic(1).with_configs({"a": "x" * room})
    assert TOPIC_CODEC.unpack("/a", pack_topic("/a", largest)) == largest
    with pytest.raises(ValueTooLargeError):
        pack_topic("/a", topic(1).with_configs({"a": "x" * (room + 1)}))


def test_a_topic_is_internal_only_if_it_says_so() -> None:
    assert not topic(1).is_internal
    made = new_topic("orders", TOPIC_ID, 1_000, [0], {}, is_internal=True)
    again = TOPIC_CODEC.unpack("/a", pack_topic("/a", made))
    assert (again.is_internal, again.is_deleted) == (True, False)
    assert again.partitions[0].preferred == 0


def test_epochs_stay_if_they_are_above_those_of_the_earlier_topic() -> None:
    made = topic(1, 2).above(4)
    assert (epochs(made), made.epoch_floor) == ([5, 5], 4)
    assert made.above(4) == made.above(3) == made

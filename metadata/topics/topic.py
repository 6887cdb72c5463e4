"""A topic as an immutable value, the allowed changes, and its bytes.

Leaves storing it, by compare-and-set, to `metadata.topics.topic_store`, and the location of a
partition's records to `metadata.topics.partition`.

Invariants: leader epochs of a name only grow, even from a deleted topic to the next one with its
name; partitions are never removed from a topic that is not deleted; a topic's stored form stays
below 300 KB.

Source: topics design, "The mapping"; Kafka's KIP-101, KIP-320 and KIP-516.
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Final, NewType

from metadata.errors import (
    InvalidTopicNameError,
    TooManyPartitionsError,
    ValueTooLargeError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken
from metadata.msgpack_fields import ITEMS_MAX, Packed, map_of, text_of
from metadata.records import Form, Ms, codec_of, sized, whole

TopicId = NewType("TopicId", bytes)
"""16 random bytes that identify a topic permanently, even after another topic gets its name."""

NAME_CHARACTERS_MAX: Final = 249
PARTITIONS_MAX: Final = ITEMS_MAX
CONFIG_BYTES_MAX: Final = 64 * 1024
"""Maximum total size of the names and values of a topic's configs, in bytes."""
BROKER_ID_MAX: Final = 999_999
LEADER_EPOCH_MAX: Final = 2**31 - 1
TOPIC_ID_BYTES: Final = 16
NO_LEADER: Final = -1
NO_EPOCH: Final = -1
NO_TOKEN: Final = UpdateToken(bytes(UPDATE_TOKEN_BYTES))
"""Token of a value that was never stored."""

_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")

StoredTopicId = Annotated[TopicId, sized(TOPIC_ID_BYTES)]
BrokerNumber = Annotated[int, whole(0, BROKER_ID_MAX)]
LeaderEpoch = Annotated[int, whole(0, LEADER_EPOCH_MAX)]
LastEpoch = Annotated[int, whole(NO_EPOCH, LEADER_EPOCH_MAX)]


def _read_configs(stored: Packed) -> Mapping[str, str]:
    return MappingProxyType({name: text_of(value) for name, value in map_of(stored).items()})


_CONFIGS: Final = Form[Mapping[str, str]]("map of str to str", dict, _read_configs)


@dataclass(frozen=True, slots=True)
class PartitionLeadership:
    """Leader of a partition (or NO_LEADER), its leader epoch, and the preferred leader."""

    preferred: BrokerNumber
    leader: Annotated[int, whole(NO_LEADER, BROKER_ID_MAX)]
    leader_epoch: LeaderEpoch

    def with_leader(self, leader: int) -> "PartitionLeadership":
        """Name a leader in a new epoch, even if it is the same broker."""
        return replace(self, leader=leader, leader_epoch=self.leader_epoch + 1)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One topic, as the cluster agreed on it. Change it only through its methods."""

    name: str
    topic_id: StoredTopicId
    created_ms: Ms
    partitions: tuple[PartitionLeadership, ...]
    configs: Annotated[Mapping[str, str], _CONFIGS] = field(
        default_factory=lambda: MappingProxyType({})
    )
    is_internal: bool = False
    is_deleted: bool = False
    """Whether the topic is deleted for clients; its ledgers are being deleted or are gone."""
    epoch_floor: LastEpoch = NO_EPOCH
    """Last leader epoch of earlier topics with this name; the first epochs are above it."""
    token: UpdateToken = NO_TOKEN

    @property
    def first_epoch(self) -> int:
        """Leader epoch with which each partition begins."""
        return self.epoch_floor + 1

    @property
    def is_tombstone(self) -> bool:
        """Whether only the epoch floor is left; the topic's ledgers are gone."""
        return self.is_deleted and not self.partitions

    def with_leaders(self, leaders: Mapping[int, int]) -> "TopicRecord":
        """Name the leaders of some partitions, each in a new epoch, even if it stays the same."""
        changed = list(self.partitions)
        for partition, leader in leaders.items():
            assert 0 <= partition < len(changed), partition
            changed[partition] = changed[partition].with_leader(leader)
        return replace(self, partitions=tuple(changed))

    def with_preferred(self, preferred: Mapping[int, int]) -> "TopicRecord":
        """Set the preferred leaders of some partitions; the current leaders stay."""
        changed = list(self.partitions)
        for partition, broker_id in preferred.items():
            assert 0 <= partition < len(changed), partition
            changed[partition] = replace(changed[partition], preferred=broker_id)
        return replace(self, partitions=tuple(changed))

    def with_partitions(self, leaders: Sequence[int]) -> "TopicRecord":
        """Add one partition per given broker, which leads it and is its preferred leader. Raises
        TooManyPartitionsError.
        """
        count = len(self.partitions) + len(leaders)
        if count > PARTITIONS_MAX:
            raise TooManyPartitionsError(self.name, count, PARTITIONS_MAX)
        more = tuple(PartitionLeadership(leader, leader, self.first_epoch) for leader in leaders)
        return replace(self, partitions=self.partitions + more)

    def with_configs(self, configs: Mapping[str, str]) -> "TopicRecord":
        """Replace all configs with the given ones."""
        return replace(self, configs=MappingProxyType(dict(configs)))

    def with_deletion(self) -> "TopicRecord":
        """Mark the topic as deleted; its partitions stay listed until their ledgers are gone."""
        return replace(self, is_deleted=True)

    def as_tombstone(self) -> "TopicRecord":
        """Keep only the name and the last leader epoch of a deleted topic."""
        assert self.is_deleted, self.name
        epochs = [partition.leader_epoch for partition in self.partitions]
        return replace(
            self,
            partitions=(),
            configs=MappingProxyType({}),
            epoch_floor=max(self.epoch_floor, *epochs) if epochs else self.epoch_floor,
        )

    def above(self, epoch_floor: int) -> "TopicRecord":
        """Raise all leader epochs above those of an earlier topic with this name."""
        lift = epoch_floor - self.epoch_floor
        if lift <= 0:
            return self
        lifted = tuple(
            replace(led, leader_epoch=led.leader_epoch + lift) for led in self.partitions
        )
        return replace(self, partitions=lifted, epoch_floor=epoch_floor)


def new_topic(
    name: str,
    topic_id: TopicId,
    created_ms: int,
    leaders: Sequence[int],
    configs: Mapping[str, str],
    *,
    is_internal: bool = False,
) -> TopicRecord:
    """Return a topic with one partition per given broker, which leads it and is its preferred
    leader.

    Raises InvalidTopicNameError, TooManyPartitionsError.
    """
    empty = TopicRecord(check_topic_name(name), topic_id, created_ms, (), is_internal=is_internal)
    return empty.with_partitions(leaders).with_configs(configs)


def check_topic_name(name: str) -> str:
    """Return the name. Raises InvalidTopicNameError unless it has 1 to 249 letters, digits, `.`,
    `_` and `-`, and is neither `.` nor `..`.
    """
    well = 0 < len(name) <= NAME_CHARACTERS_MAX and name not in (".", "..")
    if not well or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidTopicNameError(name)
    return name


TOPIC_CODEC: Final = codec_of(TopicRecord)


def pack_topic(what: str, record: TopicRecord) -> bytes:
    """Return the stored form. Raises ValueTooLargeError for configs over CONFIG_BYTES_MAX."""
    size = sum(len(name) + len(value) for name, value in record.configs.items())
    if size > CONFIG_BYTES_MAX:
        raise ValueTooLargeError(what, size, CONFIG_BYTES_MAX)
    return TOPIC_CODEC.pack(what, record)

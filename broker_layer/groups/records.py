"""Records of a group coordinator's log, and their bytes.

Leaves applying them to `shard`, and ordering and durability to the log.

Format: a msgpack array; index 0 is the format version (1), index 1 the kind:

    kind  record             fields from index 2 on
    1     OffsetsCommitted   group id, [offset]
    2     OffsetsRemoved     group id, [[topic, partition]]
    3     OffsetsPending     group id, producer id, producer epoch, [offset]
    4     TransactionEnded   producer id, producer epoch, coordinator epoch, wall ms, order
    5     ProducerSeen       producer id, producer epoch, coordinator epoch, wall ms
    6     ClassicImage       group id, generation, protocol type, protocol name or nil, leader or
                             nil, state changed ms, [member]
    7     GroupRemoved       group id
    8     ConsumerGroupChanged  group id, [change], of a group of KIP-848

    offset   [topic, partition, offset, leader epoch, metadata, committed ms, expires ms, topic id,
             order]
    change   see `consumer_records`
    member   [member id, instance id or nil, client id, client host, session timeout ms, rebalance
             timeout ms, [[protocol, metadata]], assignment]

Invariants: a record states the result of a change, so replaying it and all later ones again changes
nothing. Decoding any bytes returns a record or raises GroupRecordError. A newer version is refused.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import msgpack

from broker_layer.groups.consumer.consumer_records import (
    GroupRecordError,
    Packed,
    pack_change,
    unpack_change,
)
from broker_layer.groups.consumer.consumer_values import ConsumerGroupChanged
from broker_layer.groups.offsets.offset_table import CommittedOffset, OffsetPlace, PlacedOffset
from broker_layer.groups.values import ClassicImage, MemberImage

FORMAT_VERSION: Final = 1
OFFSETS_IN_RECORD_MAX: Final = 100
"""With metadata of maximum length, a record stays below half a megabyte."""

RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
"""A group with more metadata and assignments is refused. A ledger's entry may be twice as large."""

PlacedT = TypeVar("PlacedT")

_OFFSET_TYPES: Final = (str, int, int, int, str, int, int, bytes, int)
_new_placed: Final = PlacedOffset._make
_new_committed: Final = CommittedOffset._make


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """A group committed offsets."""

    group_id: str
    offsets: tuple[PlacedOffset, ...]


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """Offsets of a group expired, were deleted, or their topic is gone."""

    group_id: str
    places: tuple[OffsetPlace, ...]


@dataclass(frozen=True, slots=True)
class OffsetsPending:
    """An open transaction will commit offsets for a group."""

    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[PlacedOffset, ...]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A producer's transaction ended; it has no pending offsets any more.

    Separate records before this one hold the offsets that it committed.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    wall_ms: int
    order: int
    """Later commits of the producer belong to its next transaction and have a higher order."""


@dataclass(frozen=True, slots=True)
class ProducerSeen:
    """The newest epochs of a producer; in snapshots."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    """A group was removed; separate records remove its offsets."""

    group_id: str


GroupRecord = (
    OffsetsCommitted
    | OffsetsRemoved
    | OffsetsPending
    | TransactionEnded
    | ProducerSeen
    | ClassicImage
    | GroupRemoved
    | ConsumerGroupChanged
)


def encode(record: GroupRecord) -> bytes:
    """Return the bytes of a record."""
    return msgpack.packb([FORMAT_VERSION, *_fields(record)])


def decode(data: bytes) -> GroupRecord:
    """Return the record of these bytes. Raises GroupRecordError."""
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise GroupRecordError(f"not msgpack: {error}") from error
    match fields:
        case [1, int(kind), *rest]:
            return _record(kind, rest)
        case [int(version), *_]:
            raise GroupRecordError(
                f"format version {version} of a newer release: upgrade this broker"
            )
        case _:
            raise GroupRecordError("not an array with a version and a kind")


def committed_records(group_id: str, offsets: Iterable[PlacedOffset]) -> Iterator[OffsetsCommitted]:
    """Split offsets into records of bounded size."""
    for part in _parts(offsets):
        yield OffsetsCommitted(group_id, part)


def pending_records(
    group_id: str, producer_id: int, producer_epoch: int, offsets: Iterable[PlacedOffset]
) -> Iterator[OffsetsPending]:
    """Split pending offsets into records of bounded size."""
    for part in _parts(offsets):
        yield OffsetsPending(group_id, producer_id, producer_epoch, part)


def removed_records(group_id: str, places: Iterable[OffsetPlace]) -> Iterator[OffsetsRemoved]:
    """Split a removal into records of bounded size."""
    for part in _parts(places):
        yield OffsetsRemoved(group_id, part)


def _parts(placed: Iterable[PlacedT]) -> Iterator[tuple[PlacedT, ...]]:
    rest = iter(placed)
    while part := tuple(islice(rest, OFFSETS_IN_RECORD_MAX)):
        yield part


def _fields(record: GroupRecord) -> list[Packed]:
    match record:
        case OffsetsCommitted(group_id, offsets):
            return [1, group_id, _packed_offsets(offsets)]
        case OffsetsRemoved(group_id, places):
            return [2, group_id, [[topic, partition] for topic, partition in places]]
        case OffsetsPending(group_id, producer_id, epoch, offsets):
            return [3, group_id, producer_id, epoch, _packed_offsets(offsets)]
        case TransactionEnded(producer_id, epoch, coordinator_epoch, wall_ms, order):
            return [4, producer_id, epoch, coordinator_epoch, wall_ms, order]
        case ProducerSeen(producer_id, epoch, coordinator_epoch, wall_ms):
            return [5, producer_id, epoch, coordinator_epoch, wall_ms]
        case ClassicImage():
            return [
                6,
                record.group_id,
                record.generation,
                record.protocol_type,
                record.protocol_name,
                record.leader,
                record.state_changed_ms,
                [_packed_member(each) for each in record.members],
            ]
        case GroupRemoved(group_id):
            return [7, group_id]
        case ConsumerGroupChanged(group_id, changes):
            return [8, group_id, [pack_change(each) for each in changes]]


def _packed_offsets(offsets: tuple[PlacedOffset, ...]) -> list[Packed]:
    return [[topic, partition, *committed] for topic, partition, committed in offsets]


def _packed_member(member: MemberImage) -> list[Packed]:
    return [
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        [[name, metadata] for name, metadata in member.protocols],
        member.assignment,
    ]


def _record(kind: int, fields: list[Packed]) -> GroupRecord:
    match kind, fields:
        case 1, [str(group_id), [*offsets]]:
            return OffsetsCommitted(group_id, tuple(map(_offset, offsets)))
        case 2, [str(group_id), [*places]]:
            return OffsetsRemoved(group_id, tuple(map(_place, places)))
        case 3, [str(group_id), int(producer_id), int(epoch), [*offsets]]:
            return OffsetsPending(group_id, producer_id, epoch, tuple(map(_offset, offsets)))
        case 4, [int(producer_id), int(epoch), int(coordinator), int(wall_ms), int(order)]:
            return TransactionEnded(producer_id, epoch, coordinator, wall_ms, order)
        case 5, [int(producer_id), int(epoch), int(coordinator), int(wall_ms)]:
            return ProducerSeen(producer_id, epoch, coordinator, wall_ms)
        case 6, _:
            return _classic(fields)
        case 7, [str(group_id)]:
            return GroupRemoved(group_id)
        case 8, [str(group_id), [*changes]]:
            return ConsumerGroupChanged(group_id, tuple(map(unpack_change, changes)))
        case _:
            raise GroupRecordError(f"kind {kind} with {len(fields)} fields")


def _classic(fields: list[Packed]) -> ClassicImage:
    match fields:
        case [
            str(group_id),
            int(generation),
            str(protocol_type),
            (str() | None) as protocol_name,
            (str() | None) as leader,
            int(state_changed_ms),
            [*members],
        ]:
            return ClassicImage(
                group_id,
                generation,
                protocol_type,
                protocol_name,
                leader,
                state_changed_ms,
                tuple(map(_member, members)),
            )
        case _:
            raise GroupRecordError("not a classic group")


def _offset(packed: Packed) -> PlacedOffset:
    # One comparison for all fields: a load must decode 100,000 offsets in a second.
    if not isinstance(packed, list) or tuple(map(type, packed)) != _OFFSET_TYPES:
        raise GroupRecordError("not an offset")
    topic, partition, *committed = packed
    return _new_placed((topic, partition, _new_committed(committed)))


def _place(packed: Packed) -> OffsetPlace:
    match packed:
        case [str(topic), int(partition)]:
            return topic, partition
        case _:
            raise GroupRecordError("not a partition")


def _member(packed: Packed) -> MemberImage:
    match packed:
        case [
            str(member_id),
            (str() | None) as instance_id,
            str(client_id),
            str(client_host),
            int(session_timeout_ms),
            int(rebalance_timeout_ms),
            [*protocols],
            bytes(assignment),
        ]:
            return MemberImage(
                member_id,
                instance_id,
                client_id,
                client_host,
                session_timeout_ms,
                rebalance_timeout_ms,
                tuple(map(_protocol, protocols)),
                assignment,
            )
        case _:
            raise GroupRecordError("not a member")


def _protocol(packed: Packed) -> tuple[str, bytes]:
    match packed:
        case [str(name), bytes(metadata)]:
            return name, metadata
        case _:
            raise GroupRecordError("not a protocol")

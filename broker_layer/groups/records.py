"""Records of a group coordinator's log, and their bytes.

Leaves applying them to `shard`, and ordering and durability to the log.

Format: a msgpack array; index 0 is the format version (1), index 1 the number of the kind in KINDS,
then come the fields of its class in order. An offset is [topic, partition, offset, leader epoch,
metadata, committed ms, expires ms, topic id, order]; a change of a group of KIP-848 is an array
with the number of its kind, then the fields of its class.

Invariants: a record states the result of a change, so replaying it and all later ones again changes
nothing. Decoding any bytes returns a record or raises MetadataFormatError. A newer version is
refused.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Final, TypeVar, cast

import msgpack

from broker_layer.coordinator_partitions import INT, Int, many, one_of, pair
from broker_layer.groups.offset_table import CommittedOffset, OffsetPlace, PlacedOffset
from broker_layer.groups.values import ClassicImage, ConsumerGroupChanged
from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import FieldError, Packed
from metadata.records import TEXT, Form

FORMAT_VERSION: Final = 1
OFFSETS_IN_RECORD_MAX: Final = 100
"""With metadata of maximum length, a record stays below half a megabyte."""

PlacedT = TypeVar("PlacedT")

_WHAT: Final = "a record of groups"
_OFFSET_TYPES: Final = (str, int, int, int, str, int, int, bytes, int)
_new_placed: Final = PlacedOffset._make
_new_committed: Final = CommittedOffset._make


def _packed_offset(placed: PlacedOffset) -> Packed:
    topic, partition, committed = placed
    return [topic, partition, *committed]


def _offset(packed: Packed) -> PlacedOffset:
    # One comparison for all fields: a load must decode 100,000 offsets in a second.
    if not isinstance(packed, list) or tuple(map(type, packed)) != _OFFSET_TYPES:
        raise FieldError("not an offset")
    topic, partition, *committed = packed
    return _new_placed((topic, partition, _new_committed(committed)))


OFFSET: Final = Form("array of the fields of an offset", _packed_offset, _offset)


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """A group committed offsets."""

    group_id: str
    offsets: Annotated[tuple[PlacedOffset, ...], many(OFFSET)]


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """Offsets of a group expired, were deleted, or their topic is gone."""

    group_id: str
    places: Annotated[tuple[OffsetPlace, ...], many(pair(TEXT, INT))]


@dataclass(frozen=True, slots=True)
class OffsetsPending:
    """An open transaction will commit offsets for a group."""

    group_id: str
    producer_id: Int
    producer_epoch: Int
    offsets: Annotated[tuple[PlacedOffset, ...], many(OFFSET)]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A producer's transaction ended; it has no pending offsets any more.

    Separate records before this one hold the offsets that it committed.
    """

    producer_id: Int
    producer_epoch: Int
    coordinator_epoch: Int
    wall_ms: Int
    order: Int
    """Later commits of the producer belong to its next transaction and have a higher order."""


@dataclass(frozen=True, slots=True)
class ProducerSeen:
    """The newest epochs of a producer; in snapshots."""

    producer_id: Int
    producer_epoch: Int
    coordinator_epoch: Int
    wall_ms: Int


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
KINDS: Final = {
    1: OffsetsCommitted,
    2: OffsetsRemoved,
    3: OffsetsPending,
    4: TransactionEnded,
    5: ProducerSeen,
    6: ClassicImage,
    7: GroupRemoved,
    8: ConsumerGroupChanged,
}
_RECORD: Final[Form[GroupRecord]] = one_of(KINDS)


def encode(record: GroupRecord) -> bytes:
    """Return the bytes of a record."""
    return msgpack.packb([FORMAT_VERSION, *cast("list[Packed]", _RECORD.pack(record))])


def decode(data: bytes) -> GroupRecord:
    """Return the record of these bytes. Raises MetadataFormatError."""
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MetadataFormatError(_WHAT, f"not msgpack: {error}") from error
    match fields:
        case [1, *record]:
            try:
                return _RECORD.unpack(record)
            except FieldError as error:
                raise MetadataFormatError(_WHAT, f"not a record: {error}") from error
        case [int(version), *_]:
            raise MetadataFormatError(
                _WHAT, f"format version {version} of a newer release: upgrade this broker"
            )
        case _:
            raise MetadataFormatError(_WHAT, "not an array with a version and a kind")


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

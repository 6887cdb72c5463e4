"""Report of the replicas of the partitions that a broker leads, and its bytes.

Leaves writing and following the reports to `in_sync_reports.py`.

Format: a msgpack array [1, [[replica number int]], [[topic id bin of 16 bytes, [[partition int,
leader epoch int, replicas int, in sync int]]]]]. Each list of replica numbers is stored once, in
the order of first mention, and referred to by its index.

Invariants: a stored form stays below REPORT_BYTES_MAX; the report is informative only, no decision
depends on it.

Source: topics design, "The mapping" (replicas, ISR).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import (
    ITEMS_MAX,
    FieldError,
    Packed,
    array_of,
    bytes_of,
    int_of,
    pack_checked,
    unpack_versioned,
)
from metadata.topics.partition import PartitionKey
from metadata.topics.topic import (
    LEADER_EPOCH_MAX,
    PARTITIONS_MAX,
    TOPIC_ID_BYTES,
    TopicId,
)

REPLICA_ID_MAX: Final = 2**31 - 1
REPORT_BYTES_MAX: Final = 512 * 1024

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 3
_TOPIC_FIELD_COUNT: Final = 2
_PARTITION_FIELD_COUNT: Final = 4
# upper bounds of stored bytes
_HEAD_BYTES: Final = 16
_NUMBER_BYTES: Final = 5
_LIST_BYTES: Final = 3
_TOPIC_BYTES: Final = TOPIC_ID_BYTES + 8
_PARTITION_BYTES: Final = 1 + 3 + 5 + 3 + 3


@dataclass(frozen=True, slots=True)
class InSyncReport:
    """Numbers of a partition's replicas, and of those that are in sync."""

    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


def pack_reports(what: str, reports: Mapping[PartitionKey, InSyncReport]) -> tuple[bytes, int]:
    """Return the stored form, and the number of partitions that did not fit."""
    lists: dict[tuple[int, ...], int] = {}
    topics: dict[TopicId, list[Packed]] = {}
    size, count = _HEAD_BYTES, 0
    for key in sorted(reports):
        report = reports[key]
        both = dict.fromkeys((report.replicas, report.in_sync))
        fresh = [numbers for numbers in both if numbers not in lists]
        size += _PARTITION_BYTES + (0 if key.topic_id in topics else _TOPIC_BYTES)
        size += sum(_LIST_BYTES + _NUMBER_BYTES * len(numbers) for numbers in fresh)
        most_items = max(len(lists) + len(fresh), len(topics) + 1)
        if size > REPORT_BYTES_MAX or most_items > ITEMS_MAX:
            break
        for numbers in fresh:
            lists[numbers] = len(lists)
        indices = lists[report.replicas], lists[report.in_sync]
        partitions = topics.setdefault(key.topic_id, [])
        partitions.append([key.partition, report.leader_epoch, *indices])
        count += 1
    stored_lists: list[Packed] = [list[Packed](numbers) for numbers in lists]
    stored_topics: list[Packed] = [[topic_id, rows] for topic_id, rows in topics.items()]
    packed: list[Packed] = [_FORMAT_VERSION, stored_lists, stored_topics]
    value = pack_checked(what, packed, partial(unpack_reports, what))
    return value, len(reports) - count


def unpack_reports(what: str, value: bytes) -> dict[PartitionKey, InSyncReport]:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        lists = [_numbers_of(item) for item in array_of(fields[1])]
        reports: dict[PartitionKey, InSyncReport] = {}
        for topic in array_of(fields[2]):
            topic_id, partitions = _fields_of(topic, _TOPIC_FIELD_COUNT)
            for item in array_of(partitions):
                key, report = _report_of(TopicId(bytes_of(topic_id, TOPIC_ID_BYTES)), item, lists)
                reports[key] = report
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error
    return reports


def _report_of(
    topic_id: TopicId, field: Packed, lists: list[tuple[int, ...]]
) -> tuple[PartitionKey, InSyncReport]:
    partition, epoch, replicas, in_sync = _fields_of(field, _PARTITION_FIELD_COUNT)
    report = InSyncReport(
        leader_epoch=int_of(epoch, 0, LEADER_EPOCH_MAX),
        replicas=lists[int_of(replicas, 0, len(lists) - 1)],
        in_sync=lists[int_of(in_sync, 0, len(lists) - 1)],
    )
    return PartitionKey(topic_id, int_of(partition, 0, PARTITIONS_MAX - 1)), report


def _numbers_of(field: Packed) -> tuple[int, ...]:
    return tuple(int_of(item, 0, REPLICA_ID_MAX) for item in array_of(field))


def _fields_of(field: Packed, count: int) -> list[Packed]:
    fields = array_of(field)
    if len(fields) != count:
        raise FieldError(f"an array has {len(fields)} fields instead of {count}")
    return fields

"""Offsets of topics' partitions: the start of a query, the end of a micro-batch, and ranges.

Leaves the ends of partitions to `partitions`. Pure.

Format of an offset, a JSON object as Kafka's own connector writes it: {"orders": {"0": 5, "1": 0}},
the offset of the next record of each partition. In options -2 means the earliest offset, -1 the
latest. The stored offset has the ids of the topics too (`spark_io.offsets`).

Invariants: an end is exclusive; a position never goes back; every record between two positions is
read exactly once.

Source: Spark design, "Reading".
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_layer.log.state.transaction_index import AbortedTransaction
from spark_io.common_options import EARLIEST, LATEST
from spark_io.errors import OffsetError, OptionError
from spark_io.offsets import Identities, check_option, require_order, separated, shares
from spark_io.ranges import EntryRange

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
EXAMPLE: Final = '{"orders": {"0": 5, "1": 0}}'

StoredPositions = dict[str, dict[str, int]]


class TopicPartition(NamedTuple):
    """Name of one partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange(EntryRange):
    """Entries of one ledger of a partition, from which the records with offsets `first_offset` to
    `end_offset` - 1 are read.

    The offsets of entries in its middle are not known at planning time. So a part of it has the
    offsets of the complete range, and reads the records with those offsets that its entries hold:
    every record is in exactly one part.
    """

    partition: TopicPartition
    first_offset: int
    end_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


class AbortedRecords:
    """Lookup of batches of aborted transactions."""

    def __init__(self, ranges: Iterable[AbortedTransaction]) -> None:
        by_producer: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for range_ in ranges:
            by_producer[range_.producer_id].append((range_.last_offset, range_.first_offset))
        self._by_producer = {number: sorted(pairs) for number, pairs in by_producer.items()}

    def holds(self, producer_id: int, base_offset: int) -> bool:
        """Return whether a producer's transactional batch at an offset was aborted."""
        ranges = self._by_producer.get(producer_id)
        if ranges is None:
            return False
        at = bisect_left(ranges, (base_offset, 0))
        return at < len(ranges) and ranges[at][1] <= base_offset


Offsets = dict[TopicPartition, int]
"""Offset of the next record of each partition."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Readable offsets of a partition: `start` to `end` - 1."""

    start: int
    end: int


def as_json(offsets: Mapping[TopicPartition, int]) -> StoredPositions:
    """Return the stored form, in the order of topics and partitions."""
    stored: StoredPositions = {}
    for (topic, partition), offset in sorted(offsets.items()):
        stored.setdefault(topic, {})[str(partition)] = offset
    return stored


def offsets_of(stored: object, *, least: int = 0) -> Offsets:
    """Parse the stored form. Raises OffsetError."""
    offsets: Offsets = {}
    topics = stored.items() if isinstance(stored, Mapping) else ((None, None),)
    for topic, partitions in topics:
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            raise OffsetError(f"{json.dumps(stored)} is not an offset of topics such as {EXAMPLE}")
        for name, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not str(name).isdecimal() or not is_number or offset < least:
                text = f"{json.dumps(stored)} is not an offset of topics such as {EXAMPLE}"
                raise OffsetError(text)
            offsets[TopicPartition(topic, int(name))] = int(offset)
    return offsets


def chosen_offsets(
    option: str,
    text: str,
    bounds: Mapping[TopicPartition, Bounds],
    otherwise: str,
    present: Identities,
) -> Offsets:
    """Parse an option: `earliest`, `latest`, or offsets by topic and partition, with `otherwise`
    for partitions that it does not name. `present` has the ids of the topics. Raises OptionError.
    """
    given: Offsets = {}
    recorded: Identities = {}
    if text.lower() in (EARLIEST, LATEST):
        otherwise = text.lower()
    else:
        try:
            positions, recorded = separated(json.loads(text))
            given = offsets_of(positions, least=EARLIEST_OFFSET)
        except ValueError as error:
            why = f"{text!r} is neither {EARLIEST} nor {LATEST} nor offsets such as {EXAMPLE}"
            raise OptionError(option, why) from error
    unknown = [f"{place.topic}/{place.partition}" for place in given if place not in bounds]
    if unknown:
        raise OptionError(option, f"partitions {unknown} are not among those that are read")
    check_option(option, "topic", recorded, present)
    default = EARLIEST_OFFSET if otherwise == EARLIEST else LATEST_OFFSET
    chosen: Offsets = {}
    for partition, bound in bounds.items():
        offset = given.get(partition, default)
        offset = bound.start if offset == EARLIEST_OFFSET else offset
        chosen[partition] = bound.end if offset == LATEST_OFFSET else offset
    return chosen


def check_order(starting: str, ending: str) -> None:
    """Check the offsets of a batch query before anything is known about its topics. Raises
    OptionError.
    """
    require_order(
        _numbers(starting),
        _numbers(ending),
        lambda place: f"{place.topic}/{place.partition}",
        "offset",
    )


def _numbers(text: str) -> Offsets:
    """Return the offsets in an option's text, or no offsets if the text cannot be read: planning
    reports that error.
    """
    try:
        positions, _ = separated(json.loads(text))
        return offsets_of(positions, least=EARLIEST_OFFSET)
    except ValueError:
        return {}


def without_topics(offsets: Offsets, topics: Sequence[str]) -> Offsets:
    """Return the offsets of all other topics."""
    return {place: offset for place, offset in offsets.items() if place.topic not in topics}


def advanced(
    start: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    offsets_max: int | None,
) -> Offsets:
    """Return the end of a micro-batch of at most `offsets_max` offsets. A partition that is not in
    `start` is new and begins at its first offset.
    """
    begin = {partition: start.get(partition, bound.start) for partition, bound in bounds.items()}
    left = [max(0, bounds[partition].end - offset) for partition, offset in begin.items()]
    total = sum(left)
    taken = shares(left, total if offsets_max is None else min(total, offsets_max))
    end: Offsets = {place: offset for place, offset in start.items() if place not in bounds}
    moved = zip(begin.items(), taken, strict=True)
    return end | {partition: offset + count for (partition, offset), count in moved}

"""Split of a query's topic ranges into parts, one for each task.

Leaves finding the entries of offsets to `topic_ranges`, splitting entries to `splits`, and reading
to `topic_reading`. Pure.

A range is split between entries, because the offsets of entries in its middle are not known at
planning time. Each piece has the offsets of the complete range, and reads the records with those
offsets that its entries hold. So every record is in exactly one piece.

Invariants: the parts cover exactly the given ranges, in order, and no entry twice.

Source: Spark design, "Reading".
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spark_io.ledgers.splits import EntryRange, plan_splits
from spark_io.topics.topic_offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """Aborted records of a producer between two offsets, both included."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Consecutive entries of one ledger of a partition. The records with offsets `first_offset` to
    `end_offset` - 1 are read from them.
    """

    partition: TopicPartition
    entries: EntryRange
    first_offset: int
    end_offset: int
    aborted: tuple[AbortedRange, ...] = ()


class AbortedRecords:
    """Lookup of batches of aborted transactions."""

    def __init__(self, ranges: Iterable[AbortedRange]) -> None:
        by_producer: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in ranges:
            by_producer[each.producer_id].append((each.last_offset, each.first_offset))
        self._by_producer = {number: sorted(found) for number, found in by_producer.items()}

    def holds(self, producer_id: int, base_offset: int) -> bool:
        """Return whether a producer's transactional batch at an offset was aborted."""
        found = self._by_producer.get(producer_id)
        if found is None:
            return False
        at = bisect_left(found, (base_offset, 0))
        return at < len(found) and found[at][1] <= base_offset


def plan_topic_splits(
    ranges: Sequence[TopicRange], *, split_bytes: int, min_partitions: int
) -> list[tuple[TopicRange, ...]]:
    """Return the parts, each of about `split_bytes`."""
    whole = {each.entries.ledger_id: each for each in ranges}
    assert len(whole) == len(ranges), "a ledger is of one partition, and read once"
    parts = plan_splits(
        [each.entries for each in ranges], split_bytes=split_bytes, min_partitions=min_partitions
    )
    return [
        tuple(replace(whole[entries.ledger_id], entries=entries) for entries in part)
        for part in parts
    ]

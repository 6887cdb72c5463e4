"""Cuts what a query reads of topics into the parts that its tasks read.

Leaves finding the entries of offsets to `topic_ranges`, cutting entries to `splits`, and reading to
`topic_reading`. Pure.

A range is cut between entries, for what offsets the entries in its middle have is not known when
it is planned: each piece says which offsets the whole is about, and takes what its entries hold of
them. So every record is in one piece.

Invariants: the parts cover exactly what was given, in order, and no entry twice.

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
    """A producer's records between two offsets, both included, count for nothing."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Consecutive entries of one ledger of a partition, of which the records with the offsets
    first_offset..end_offset-1 are read.
    """

    partition: TopicPartition
    entries: EntryRange
    first_offset: int
    end_offset: int
    aborted: tuple[AbortedRange, ...] = ()


class AbortedRecords:
    """Tells which batches belong to aborted transactions."""

    def __init__(self, ranges: Iterable[AbortedRange]) -> None:
        by_producer: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in ranges:
            by_producer[each.producer_id].append((each.last_offset, each.first_offset))
        self._by_producer = {number: sorted(found) for number, found in by_producer.items()}

    def holds(self, producer_id: int, base_offset: int) -> bool:
        """Tell whether a producer's transactional batch at an offset was aborted."""
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

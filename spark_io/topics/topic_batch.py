"""Batch reads of topics as a DataFrame.

Leaves the ends of partitions to `topic_view`, finding entries to `topic_ranges`, splitting to
`topic_splits`, and reading to `topic_reading`.

Invariants: a query sees each partition as it was when the query was planned.

Source: Spark design, "Reading".
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_io.common_options import EARLIEST, LATEST
from spark_io.sentence_first import sentence_first
from spark_io.topics.topic_access import TopicServices, access_of
from spark_io.topics.topic_offsets import TopicPartition, check_order, chosen_offsets
from spark_io.topics.topic_options import TopicReadOptions
from spark_io.topics.topic_ranges import RangeFinder
from spark_io.topics.topic_reading import read_topic_ranges
from spark_io.topics.topic_splits import TopicRange, plan_topic_splits
from spark_io.topics.topic_view import TopicsView

PLANNING_TIMEOUT_S: Final = 600.0


@dataclass
class TopicRangePartition(InputPartition):
    """Input of one task."""

    ranges: tuple[TopicRange, ...]


def topic_partitions_of(
    ranges: Sequence[TopicRange], options: TopicReadOptions
) -> list[InputPartition]:
    """Split ranges into partitions according to the options. Without ranges return one empty
    partition, because Spark would otherwise read a partition None.
    """
    parts = plan_topic_splits(
        ranges, split_bytes=options.split_bytes, min_partitions=options.min_partitions
    )
    return [TopicRangePartition(part) for part in parts] or [TopicRangePartition(())]


async def find_ranges(
    finder: RangeFinder,
    view: TopicsView,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> list[TopicRange]:
    """Return the ranges between offsets of some partitions, in their order."""
    found = await asyncio.gather(
        *[
            finder.find(each, start[partition], end[partition])
            for partition, each in view.partitions.items()
            if start[partition] < end[partition]
        ]
    )
    return [each for ranges in found for each in ranges]


class TopicBatchReader(DataSourceReader):
    """Reader of a batch query: plans on the driver, reads in tasks, connects only there."""

    def __init__(self, options: TopicReadOptions) -> None:
        check_order(options.starting_offsets, options.ending_offsets)
        self._options = options

    @sentence_first()
    def partitions(self) -> list[InputPartition]:
        """Split the query's records into parts of about `splitBytes`."""
        access = access_of(self._options.client)
        ranges = access.call("planning a query", self._plan, PLANNING_TIMEOUT_S)
        return topic_partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one part."""
        assert isinstance(partition, TopicRangePartition), "partitions() made it"
        with sentence_first():
            yield from read_topic_ranges(partition.ranges, self._options)

    async def _plan(self, services: TopicServices) -> list[TopicRange]:
        options = self._options
        view = TopicsView(services, options.topics, is_committed=options.is_committed)
        try:
            await view.load()
            bounds, ids = view.bounds, view.identities
            starting, ending = options.starting_offsets, options.ending_offsets
            start = chosen_offsets("startingOffsets", starting, bounds, EARLIEST, ids)
            end = chosen_offsets("endingOffsets", ending, bounds, LATEST, ids)
            finder = RangeFinder(services, fail_on_data_loss=options.fail_on_data_loss)
            return await find_ranges(finder, view, start, end)
        finally:
            await view.aclose()

"""Readers of the `topic` source, of batch queries and of streams.

Leaves the ends of partitions to `partitions`, finding entries to `ranges`, and reading to
`reading`.

Invariants: a batch query sees each partition as it was when the query was planned; a stream reads a
new partition from its first record on.

Source: Spark design, "Reading".
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_io.common_options import EARLIEST, LATEST
from spark_io.errors import OffsetError
from spark_io.offsets import (
    FollowedSource,
    IdentityCheck,
    MicroBatchLimits,
    Offset,
    separated,
    with_identities,
)
from spark_io.ranges import EntryRange
from spark_io.readers import RangePartition, RangeReader, StreamReader
from spark_io.topics.access import TopicServices, access_of
from spark_io.topics.offsets import (
    Bounds,
    Offsets,
    TopicPartition,
    TopicRange,
    advanced,
    as_json,
    check_order,
    chosen_offsets,
    offsets_of,
    without_topics,
)
from spark_io.topics.options import TopicReadOptions
from spark_io.topics.partitions import TopicsView
from spark_io.topics.ranges import RangeFinder
from spark_io.topics.reading import read_topic_ranges
from spark_io.workers import sentence_first

PLANNING_TIMEOUT_S: Final = 600.0
SEEN_WAIT_S: Final = 30.0
"""Time that a restarted query waits until partitions reach their earlier ends, in seconds."""
SEEN_STEP_S: Final = 0.1

_log = logging.getLogger(__name__)


async def find_ranges(
    finder: RangeFinder,
    view: TopicsView,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> list[TopicRange]:
    """Return the ranges between offsets of some partitions, in their order."""
    listed = await asyncio.gather(
        *[
            finder.find(partition_view, start[partition], end[partition])
            for partition, partition_view in view.partitions.items()
            if start[partition] < end[partition]
        ]
    )
    return [range_ for ranges in listed for range_ in ranges]


class _TopicReader(RangeReader[TopicReadOptions]):
    """What tasks do with ranges of topics."""

    def _packed(self, ranges: Iterable[EntryRange]) -> tuple[EntryRange, ...]:
        return tuple(ranges)

    def _rows(self, wanted: RangePartition) -> Iterator[pa.RecordBatch]:
        ranges = (range_ for range_ in wanted.ranges if isinstance(range_, TopicRange))
        return read_topic_ranges(ranges, self._options)


class TopicBatchReader(_TopicReader, DataSourceReader):
    """Reader of a batch query: plans on the driver, reads in tasks, connects only there."""

    def __init__(self, options: TopicReadOptions) -> None:
        check_order(options.starting_offsets, options.ending_offsets)
        super().__init__(options)

    @sentence_first()
    def partitions(self) -> list[InputPartition]:
        """Split the query's records into parts of about `splitBytes`."""
        access = access_of(self._options.client)
        ranges = access.call("planning a query", self._plan, PLANNING_TIMEOUT_S)
        return self._parts_of(ranges)

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


class TopicStreamReader(_TopicReader, StreamReader[TopicReadOptions]):
    """Reader of a stream of topics."""

    def _follow(self) -> FollowedSource:
        return FollowedTopics(self._options)


class FollowedTopics(FollowedSource):
    """Topics, with all their partitions."""

    def __init__(self, options: TopicReadOptions) -> None:
        self._options = options
        self._access = access_of(options.client)
        self._view = self._access.call("beginning a query", self._begin, PLANNING_TIMEOUT_S)
        self._finder: RangeFinder | None = None

    def start(self, text: str) -> Offset:
        """Return the start of a new query. Raises OptionError."""
        bounds, ids = self._view.bounds, self._view.identities
        offsets = chosen_offsets("startingOffsets", text, bounds, EARLIEST, ids)
        return with_identities(as_json(offsets), ids)

    def latest(self) -> Offset:
        """Return the readable end of each partition."""
        ends = {partition: bounds.end for partition, bounds in self._view.bounds.items()}
        return with_identities(as_json(ends), self._view.identities)

    def advance(self, start: Mapping[str, object], end: Offset, limits: MicroBatchLimits) -> Offset:
        """Give each partition a share in proportion to its backlog."""
        begin, _ = self._offsets(start)
        stop, _ = self._offsets(end)
        bounds = {
            partition: Bounds(bound.start, stop[partition])
            for partition, bound in self._view.bounds.items()
            if partition in stop
        }
        offsets = advanced(begin, bounds, limits.entries)
        _, recorded = separated(start)
        return with_identities(as_json(offsets), {**recorded, **self._view.identities})

    def ranges(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[EntryRange]:
        """Return the ranges of all partitions with new records."""
        check = self._check
        begin, changed = self._offsets(start)
        stop, lost = self._offsets(end)
        check.log([*changed, *lost])

        async def plan(services: TopicServices) -> list[TopicRange]:
            return await self._plan(services, begin, stop)

        return [*self._access.call("planning a micro-batch", plan, PLANNING_TIMEOUT_S)]

    def close(self) -> None:
        """Stop following."""

        async def end(_: TopicServices) -> None:
            await self._view.aclose()

        self._access.call("ending a query", end, PLANNING_TIMEOUT_S)

    async def _plan(
        self, services: TopicServices, start: Offsets, end: Offsets
    ) -> list[TopicRange]:
        view = self._view
        if self._finder is None:
            fail = self._options.fail_on_data_loss
            self._finder = RangeFinder(services, fail_on_data_loss=fail)
        self._require_named(start, end)
        await _wait_until_seen(view, end)
        begin = {partition: start.get(partition, 0) for partition in view.partitions}
        stop = {partition: end.get(partition, 0) for partition in view.partitions}
        return await find_ranges(self._finder, view, begin, stop)

    def _require_named(self, start: Offsets, end: Offsets) -> None:
        """Check that no records of the micro-batch are of partitions that the query does not read.
        Raises OffsetError.
        """
        unread = [
            f"{partition.topic}/{partition.partition}"
            for partition, offset in end.items()
            if partition not in self._view.partitions and start.get(partition, 0) < offset
        ]
        if not unread:
            return
        text = f"the micro-batch has records of {unread}, which the options do not name"
        if self._options.fail_on_data_loss:
            raise OffsetError(f"{text}: name their topics too, or begin with a new checkpoint")
        _log.warning("%s: they are left out", text)

    @property
    def _check(self) -> IdentityCheck:
        fail = self._options.fail_on_data_loss
        return IdentityCheck("topic", self._view.identities, fail_on_data_loss=fail)

    def _offsets(self, stored: Mapping[str, object]) -> tuple[Offsets, list[str]]:
        """Return the offsets without those of topics that were created again, and the names of
        these. Raises OffsetError, RecreatedError.
        """
        positions, recorded = separated(stored)
        offsets = offsets_of(positions)
        changed = self._check.recreated(recorded, dict.fromkeys(offset.topic for offset in offsets))
        return without_topics(offsets, changed), changed

    async def _begin(self, services: TopicServices) -> TopicsView:
        options = self._options
        view = TopicsView(services, options.topics, is_committed=options.is_committed)
        try:
            await view.follow()
        except BaseException:
            await view.aclose()
            raise
        return view


async def _wait_until_seen(view: TopicsView, end: Mapping[TopicPartition, int]) -> None:
    """Wait until partitions reach the end of a micro-batch that was begun before a restart: the
    bookies that respond may not have received the newest LAC yet.
    """
    waited_s = 0.0
    while waited_s < SEEN_WAIT_S:
        bounds = view.bounds
        if all(bound.end >= end.get(partition, 0) for partition, bound in bounds.items()):
            return
        await asyncio.sleep(SEEN_STEP_S)
        waited_s += SEEN_STEP_S

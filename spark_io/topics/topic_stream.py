"""Stream reads of topics, as micro-batches.

Leaves following partitions to `topic_view`, finding entries to `topic_ranges`, and reading to
`topic_reading`. Spark requests the newest offset about a hundred times per second: the value is
updated in the background.

Invariants: an offset is plain JSON and is stored only in the checkpoint; the records between two
offsets are the same at every read. A new partition is read from its first record on. An offset is
used only with the topics whose ids it has.

Source: Spark design, "Reading".
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_io.common_options import EARLIEST, refuse_end_of_stream
from spark_io.errors import OffsetError
from spark_io.identities import Identities, IdentityCheck, separated, with_identities
from spark_io.sentence_first import sentence_first
from spark_io.topics.topic_access import TopicAccess, TopicServices, access_of
from spark_io.topics.topic_batch import (
    PLANNING_TIMEOUT_S,
    TopicRangePartition,
    find_ranges,
    topic_partitions_of,
)
from spark_io.topics.topic_offsets import (
    Bounds,
    Offsets,
    TopicPartition,
    advanced,
    as_json,
    chosen_offsets,
    offsets_of,
    without_topics,
)
from spark_io.topics.topic_options import TopicReadOptions
from spark_io.topics.topic_ranges import RangeFinder
from spark_io.topics.topic_reading import read_topic_ranges
from spark_io.topics.topic_splits import TopicRange
from spark_io.topics.topic_view import TopicsView

StoredOffset = dict[str, object]

SEEN_WAIT_S: Final = 30.0
"""Time that a restarted query waits until partitions reach their earlier ends, in seconds."""
SEEN_STEP_S: Final = 0.1

_log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream: plans on the driver, reads in tasks."""

    def __init__(self, options: TopicReadOptions) -> None:
        refuse_end_of_stream(options.ending_offsets)
        self._options = options
        self._view: TopicsView | None = None
        self._finder: RangeFinder | None = None
        self._last: Mapping[TopicPartition, Bounds] | None = None
        """End of a query with Trigger.AvailableNow."""

    @sentence_first()
    def initialOffset(self) -> StoredOffset:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        text, view = self._options.starting_offsets, self._followed()
        ids = view.identities
        offsets = chosen_offsets("startingOffsets", text, view.bounds, EARLIEST, ids)
        return with_identities(as_json(offsets), ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch from the options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        return ReadAllAvailable()

    @sentence_first()
    def latestOffset(  # noqa: N802
        self, start: Mapping[str, object] | None = None, limit: ReadLimit | None = None
    ) -> StoredOffset:
        """Return the end of the next micro-batch."""
        view = self._followed()
        bounds = view.bounds if self._last is None else self._last
        if start is None:
            return _end_of(bounds, view.identities)
        begin, _ = _checked(self._check(view), start)
        _, recorded = separated(start)
        offsets_max = self._options.max_offsets_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
            offsets_max = rows if offsets_max is None else min(offsets_max, rows)
        end = advanced(begin, bounds, offsets_max)
        return with_identities(as_json(end), {**recorded, **view.identities})

    def reportLatestOffset(self) -> StoredOffset:  # noqa: N802
        """Return the newest position, for progress reports."""
        view = self._followed()
        return _end_of(view.bounds, view.identities)

    @sentence_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current end of the partitions. The query stops there."""
        self._last = self._followed().bounds

    @sentence_first()
    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[InputPartition]:
        """Split a micro-batch into parts of about `splitBytes`."""
        view = self._followed()
        check = self._check(view)
        begin, changed = _checked(check, start)
        stop, lost = _checked(check, end)
        check.log([*changed, *lost])

        async def plan(services: TopicServices) -> list[TopicRange]:
            return await self._plan(services, view, begin, stop)

        ranges = self._access().call("planning a micro-batch", plan, PLANNING_TIMEOUT_S)
        return topic_partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one part."""
        assert isinstance(partition, TopicRangePartition), "partitions() made it"
        with sentence_first():
            yield from read_topic_ranges(partition.ranges, self._options)

    def commit(self, end: Mapping[str, object]) -> None:
        """Do nothing: a checkpoint holds the offset, and retention does not depend on readers."""

    def stop(self) -> None:
        """Stop following."""
        view, self._view = self._view, None
        if view is not None:

            async def end(_: TopicServices) -> None:
                await view.aclose()

            self._access().call("ending a query", end, PLANNING_TIMEOUT_S)

    async def _plan(
        self, services: TopicServices, view: TopicsView, start: Offsets, end: Offsets
    ) -> list[TopicRange]:
        if self._finder is None:
            fail = self._options.fail_on_data_loss
            self._finder = RangeFinder(services, fail_on_data_loss=fail)
        self._require_named(view, start, end)
        await _wait_until_seen(view, end)
        begin = {partition: start.get(partition, 0) for partition in view.partitions}
        stop = {partition: end.get(partition, 0) for partition in view.partitions}
        return await find_ranges(self._finder, view, begin, stop)

    def _require_named(self, view: TopicsView, start: Offsets, end: Offsets) -> None:
        """Check that no records of the micro-batch are of partitions that the query does not read.
        Raises OffsetError.
        """
        unread = [
            f"{each.topic}/{each.partition}"
            for each, offset in end.items()
            if each not in view.partitions and start.get(each, 0) < offset
        ]
        if not unread:
            return
        text = f"the micro-batch has records of {unread}, which the options do not name"
        if self._options.fail_on_data_loss:
            raise OffsetError(f"{text}: name their topics too, or begin with a new checkpoint")
        _log.warning("%s: they are left out", text)

    def _check(self, view: TopicsView) -> IdentityCheck:
        return IdentityCheck(
            "topic", view.identities, fail_on_data_loss=self._options.fail_on_data_loss
        )

    def _access(self) -> TopicAccess:
        return access_of(self._options.client)

    def _followed(self) -> TopicsView:
        if self._view is None:
            options = self._options

            async def follow(services: TopicServices) -> TopicsView:
                view = TopicsView(services, options.topics, is_committed=options.is_committed)
                try:
                    await view.follow()
                except BaseException:
                    await view.aclose()
                    raise
                return view

            self._view = self._access().call("beginning a query", follow, PLANNING_TIMEOUT_S)
        return self._view


def _checked(check: IdentityCheck, stored: Mapping[str, object]) -> tuple[Offsets, list[str]]:
    """Return the offsets without those of topics that were created again, and the names of these.
    Raises OffsetError, RecreatedError.
    """
    positions, recorded = separated(stored)
    offsets = offsets_of(positions)
    changed = check.recreated(recorded, dict.fromkeys(each.topic for each in offsets))
    return without_topics(offsets, changed), changed


def _end_of(bounds: Mapping[TopicPartition, Bounds], identities: Identities) -> StoredOffset:
    ends = {partition: each.end for partition, each in bounds.items()}
    return with_identities(as_json(ends), identities)


async def _wait_until_seen(view: TopicsView, end: Mapping[TopicPartition, int]) -> None:
    """Wait until partitions reach the end of a micro-batch that was begun before a restart: the
    bookies that respond may not have received the newest LAC yet.
    """
    waited_s = 0.0
    while waited_s < SEEN_WAIT_S:
        bounds = view.bounds
        if all(each.end >= end.get(partition, 0) for partition, each in bounds.items()):
            return
        await asyncio.sleep(SEEN_STEP_S)
        waited_s += SEEN_STEP_S

"""Stream reads of ledgers or of a chain, as micro-batches.

Leaves following them to `stream_ledgers`, splitting to `splits`, and reading to `reading`.

Invariants: an offset is plain JSON and is stored only in the checkpoint; the entries between two
offsets are the same at every read. An offset is used only with the ledgers or the chain whose
identities it has.

Source: Spark design, "Reading".
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_io.ledgers.batch import RangePartition, partitions_of
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.positions import MicroBatchLimits
from spark_io.ledgers.reading import read_ranges
from spark_io.ledgers.stream_ledgers import (
    FollowedSource,
    Offset,
    check_stream,
    follow,
    starting_offset,
)
from spark_io.sentence_first import sentence_first
from spark_io.worker_client import client_of


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream: plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        check_stream(options)
        self._options = options
        self._source: FollowedSource | None = None
        self._last: Offset | None = None
        """End of a query with Trigger.AvailableNow."""

    @sentence_first()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        return starting_offset(self._followed(), self._options.starting_offsets)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch from the options."""
        if self._options.max_entries_per_trigger is not None:
            return ReadMaxRows(self._options.max_entries_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @sentence_first()
    def latestOffset(  # noqa: N802
        self, start: Mapping[str, object] | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        """Return the end of the next micro-batch."""
        source = self._followed()
        end = source.latest() if self._last is None else self._last
        if start is None:
            return end
        return source.advance(start, end, self._allowance(limit))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the newest position, for progress reports."""
        return self._followed().latest()

    @sentence_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current end of the ledgers. The query stops there."""
        self._last = self._followed().latest()

    @sentence_first()
    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[InputPartition]:
        """Split a micro-batch into parts of about `splitBytes`."""
        source = self._followed()
        return partitions_of(source.ranges(start, end), self._options, source.chain_token)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one part."""
        assert isinstance(partition, RangePartition), "partitions() made it"
        with sentence_first():
            yield from read_ranges(list(partition.ranges), self._options, partition.chain_token)

    def commit(self, end: Mapping[str, object]) -> None:
        """Do nothing: a checkpoint holds the offset, and reading does not trim ledgers."""

    def _allowance(self, limit: ReadLimit | None) -> MicroBatchLimits:
        """Combine Spark's limit with those of the options: all of them apply."""
        entries, size = self._options.max_entries_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            entries = limit.max_rows if entries is None else min(entries, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes if size is None else min(size, limit.max_bytes)
        return MicroBatchLimits(entries, size)

    def _followed(self) -> FollowedSource:
        if self._source is None:
            self._source = follow(client_of(self._options.client), self._options)
        return self._source

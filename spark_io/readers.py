"""Readers of both data sources: what Spark calls, for batch queries and for streams.

Leaves what a query reads to the data sources.

Invariants: an offset is plain JSON and is stored only in the checkpoint; what is between two
offsets is the same at every read. An offset is used only with what it was recorded for.

Source: Spark design, "Reading"; measured: PySpark 4.3, `python_streaming_source_runner`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_io.common_options import LATEST, CommonReadOptions
from spark_io.errors import OptionError, SchemaError, SparkIoError
from spark_io.offsets import FollowedSource, MicroBatchLimits, Offset
from spark_io.ranges import EntryRange, plan_splits
from spark_io.workers import sentence_first

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OptionsT = TypeVar("OptionsT", bound=CommonReadOptions)


def describe_columns(schema: "StructType") -> str:
    """Return the names and types of columns, in the form of DDL."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def require_columns(what: str, wanted: str, schema: "StructType") -> None:
    """Raise SchemaError if a query gave columns other than those of the source."""
    given = describe_columns(schema)
    if given != wanted:
        raise SchemaError(
            f"the columns of {what} are {wanted!r}; the given schema is {given!r}: leave it "
            "out, and select or cast afterwards"
        )


@dataclass
class RangePartition(InputPartition):
    """Input of one task."""

    ranges: Iterable[EntryRange] = ()
    chain_token: bytes | None = None
    """Identity of the chain that links the ledgers; None without a chain."""


class RangeReader(ABC, Generic[OptionsT]):
    """Reader that plans ranges on the driver, and reads them in tasks."""

    def __init__(self, options: OptionsT) -> None:
        self._options = options

    @abstractmethod
    def _packed(self, ranges: Iterable[EntryRange]) -> Iterable[EntryRange]:
        """Return ranges as a plan holds them."""

    @abstractmethod
    def _rows(self, wanted: RangePartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        assert isinstance(partition, RangePartition), "partitions() made it"
        with sentence_first():
            yield from self._rows(partition)

    def _parts_of(
        self, ranges: Iterable[EntryRange], chain_token: bytes | None = None
    ) -> list[InputPartition]:
        """Split ranges into partitions according to the options. Without ranges return one empty
        partition, because Spark would otherwise read a partition None.
        """
        options = self._options
        parts = plan_splits(
            self._packed(ranges) if options.min_partitions > 1 else ranges,
            split_bytes=options.split_bytes,
            split_entries=options.split_entries,
            min_partitions=options.min_partitions,
        )
        made = [RangePartition(self._packed(part), chain_token) for part in parts]
        return [*made] or [RangePartition()]


class StreamReader(RangeReader[OptionsT], DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream: plans on the driver, reads in tasks."""

    def __init__(self, options: OptionsT) -> None:
        super().__init__(options)
        if options.ending_offsets.lower() != LATEST:
            why = (
                "a stream has no end: use a batch query, or Trigger.AvailableNow for what is there"
            )
            raise OptionError("endingOffsets", why)
        self._source: FollowedSource | None = None
        self._last: Offset | None = None
        """End of a query with Trigger.AvailableNow."""

    @abstractmethod
    def _follow(self) -> FollowedSource:
        """Begin to follow what the options name."""

    @sentence_first()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        return self._followed().start(self._options.starting_offsets)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch from the options."""
        options = self._options
        if options.max_entries_per_trigger is not None:
            return ReadMaxRows(options.max_entries_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @sentence_first()
    def latestOffset(  # noqa: N802
        self, start: Mapping[str, object] | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        """Return the end of the next micro-batch."""
        source = self._followed()
        end = source.latest() if self._last is None else self._last
        return end if start is None else source.advance(start, end, self._limits(limit))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the newest position, for progress reports."""
        return self._followed().reported()

    @sentence_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current end. The query stops there."""
        self._last = self._followed().latest()

    @sentence_first()
    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> list[InputPartition]:
        """Split a micro-batch into parts of about `splitBytes`."""
        source = self._followed()
        return self._parts_of(source.ranges(start, end), source.chain_token)

    def commit(self, end: Mapping[str, object]) -> None:
        """Do nothing: a checkpoint holds the offset, and readers do not cause deletions."""

    def stop(self) -> None:
        """Stop following."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _limits(self, limit: ReadLimit | None) -> MicroBatchLimits:
        """Combine Spark's limit with those of the options: all of them apply."""
        options = self._options
        entries, size = options.max_entries_per_trigger, options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            entries = limit.max_rows if entries is None else min(entries, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes if size is None else min(size, limit.max_bytes)
        return MicroBatchLimits(entries, size)

    def _followed(self) -> FollowedSource:
        if self._source is None:
            self._source = self._follow()
        return self._source


class RefusedStreamReader(DataSourceStreamReader):
    """Reader of a stream that was refused: it raises the reason at the first call.

    PySpark 4.3 hides an error of `streamReader` behind an UnboundLocalError of its own, and shows
    those of a reader's methods.
    """

    def __init__(self, error: SparkIoError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error, at the start of a new query."""
        self._refuse()

    def latestOffset(self) -> NoReturn:  # type: ignore[override]  # noqa: N802 - without limits
        """Raise the error, at the start of a query with a checkpoint."""
        self._refuse()

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> NoReturn:
        """Raise the error, at the restart of a micro-batch."""
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error. Nothing is planned, so no task calls this."""
        self._refuse()

    @sentence_first()
    def _refuse(self) -> NoReturn:
        raise self._error


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Return the reader that `make` returns, or one that raises the error of `make`."""
    try:
        return make()
    except SparkIoError as error:
        return RefusedStreamReader(error)

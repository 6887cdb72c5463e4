"""Conversion of the records of a partition to Arrow batches.

Leaves parsing records to `record_columns`, and shipping the batches to Spark.

Format of a row: key binary, value binary, topic string, partition int32, offset int64, timestamp in
µs, headers: a list of (key string, value binary), null without any; the column is absent if headers
are not wanted. A timestamp that a producer did not set is 1 ms before 1970, as Kafka's -1.

Invariants: a batch holds records of one partition, in order.

Source: Spark design, "Reading": batches of 1-4 MB are the fastest for Spark.
"""

from array import array
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Final

import pyarrow as pa

from broker_layer.kafka.record_batch import Compression, RecordBatchHeader
from spark_io.ledgers.rows import ROWS_PER_BATCH_MAX
from spark_io.topics.record_columns import RecordColumns
from spark_io.topics.topic_offsets import TopicPartition

TIMESTAMP_US_MAX: Final = 2**63 - 1
DDL_WITHOUT_HEADERS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
)
DDL: Final = DDL_WITHOUT_HEADERS + ", headers array<struct<key:string,value:binary>>"

_TIMESTAMP_MS: Final = pa.timestamp("ms", tz="UTC")
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(_HEADER)
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("headers", _HEADERS),
    ]
)
_SCHEMA_WITHOUT_HEADERS: Final = pa.schema(list(_SCHEMA)[:-1])


class TopicRows:
    """Collector of records of one partition into Arrow batches of about `bytes_wanted`."""

    def __init__(
        self, partition: TopicPartition, *, bytes_wanted: int, include_headers: bool
    ) -> None:
        self._partition = partition
        self._bytes_wanted = bytes_wanted
        self._include_headers = include_headers
        self._columns = RecordColumns()
        self._bytes = 0

    def add(
        self, header: RecordBatchHeader, data: bytes, first_offset: int, end_offset: int
    ) -> Iterator[pa.RecordBatch]:
        """Add the records with offsets `first_offset` to `end_offset` - 1 of one complete batch;
        yield the Arrow batches that they fill. Raises BatchError if they are damaged.
        """
        columns = self._columns
        start = len(columns)
        columns.add(header, data, first_offset, end_offset)
        is_packed = header.compression is not Compression.NONE
        values = columns.values[start:] if is_packed else ()
        self._bytes += len(data) + sum(len(each) for each in values if each is not None)
        if self._bytes >= self._bytes_wanted or len(self._columns) >= ROWS_PER_BATCH_MAX:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected rest, if any."""
        columns, self._columns, self._bytes = self._columns, RecordColumns(), 0
        if columns:
            whole = self._batch(columns)
            for start in range(0, len(columns), ROWS_PER_BATCH_MAX):
                yield whole.slice(start, ROWS_PER_BATCH_MAX)

    def _batch(self, columns: RecordColumns) -> pa.RecordBatch:
        count = len(columns)
        arrays = [
            pa.array(columns.keys, pa.binary()),
            pa.array(columns.values, pa.binary()),
            pa.repeat(pa.scalar(self._partition.topic, pa.string()), count),
            pa.repeat(pa.scalar(self._partition.partition, pa.int32()), count),
            _numbers(pa.int64(), columns.offsets),
            _timestamps(columns.timestamps_ms),
        ]
        if not self._include_headers:
            return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA_WITHOUT_HEADERS)
        arrays.append(_headers(columns))
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _timestamps(values_ms: "array[int]") -> pa.Array:
    """Return times that Spark can hold: times beyond 290,000 years are limited to that."""
    try:
        return _numbers(_TIMESTAMP_MS, values_ms).cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        microseconds = (each * 1_000 for each in values_ms)
        bounded = [max(-TIMESTAMP_US_MAX, min(TIMESTAMP_US_MAX, each)) for each in microseconds]
        return _numbers(_TIMESTAMP, array("q", bounded))


def _numbers(kind: pa.DataType, values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _headers(columns: RecordColumns) -> pa.Array:
    count, found = len(columns), columns.headers
    if not found:
        return pa.nulls(count, _HEADERS)
    rows = [found.get(row) for row in range(count)]
    flat = list(chain.from_iterable(each for each in rows if each is not None))
    items = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in flat], pa.string()),
            pa.array([content for _, content in flat], pa.binary()),
        ],
        fields=list(_HEADER),
    )
    ends = array("i", accumulate((len(each) if each else 0 for each in rows), initial=0))
    return pa.ListArray.from_arrays(
        _numbers(pa.int32(), ends),
        items,
        type=_HEADERS,
        mask=pa.array([each is None for each in rows], pa.bool_()),
    )

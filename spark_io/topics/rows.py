"""Conversion of the records of a partition to Arrow batches.

Leaves batches with an unusual layout to `record_batch.parse_records`, and shipping to Spark.

Format of a row: key binary, value binary, topic string, partition int32, offset int64, timestamp in
µs, headers: a list of (key string, value binary), null without any; the column is absent if headers
are not wanted. A timestamp that a producer did not set is 1 ms before 1970, as Kafka's -1.

A record is a sequence of numbers of variable length, so Python must step from field to field. Here
this is one loop without calls, about 1 µs per record. Batches that it cannot read go to the slow
parser, which decides whether they are damaged.

Invariants: an Arrow batch holds records of one partition, in order; the columns have equal length,
also after an error; the records are those that `parse_records` returns.

Source: Spark design, "Reading": batches of 1-4 MB are the fastest for Spark; Kafka's protocol
guide, "Record".
"""

from array import array
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Final

import pyarrow as pa

from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    Compression,
    RecordBatchHeader,
    parse_records,
)
from broker_layer.kafka.record_batch.compression import decompress
from spark_io.ledgers.rows import ROWS_PER_BATCH_MAX
from spark_io.topics.offsets import TopicPartition

TIMESTAMP_US_MAX: Final = 2**63 - 1
RECORDS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum size of one batch's records after decompression, in bytes."""
_CONTINUED: Final = 0x80
_LONG: Final = _CONTINUED * _CONTINUED
"""Minimum sum of a number's first two bytes if more bytes follow."""
_BITS_MAX: Final = 64
_ABSENT: Final = 1
"""Encoded length, -1, of a missing key or value."""
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
Header = tuple[str, bytes | None]


class RecordColumns:
    """Records of some batches, in order."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offsets = array("q")
        self.timestamps_ms = array("q")
        self.headers: dict[int, tuple[Header, ...]] = {}
        """Headers by row, of records that have any."""

    def __len__(self) -> int:
        return len(self.offsets)

    def add(
        self, header: RecordBatchHeader, data: bytes, first_offset: int, end_offset: int
    ) -> None:
        """Add the records with offsets `first_offset` to `end_offset` - 1 of one complete batch.
        Raises BatchError if they are damaged.
        """
        start = len(self)
        is_whole = first_offset <= header.base_offset and header.last_offset < end_offset
        if is_whole and self._take_quickly(header, data, start):
            return
        self._truncate(start)
        for record in parse_records(data, bytes_max=RECORDS_BYTES_MAX):
            if first_offset <= record.offset < end_offset:
                if record.headers:
                    self.headers[len(self)] = record.headers
                self.keys.append(record.key)
                self.values.append(record.value)
                self.offsets.append(record.offset)
                self.timestamps_ms.append(record.timestamp_ms)

    def _truncate(self, count: int) -> None:
        del self.keys[count:], self.values[count:], self.offsets[count:], self.timestamps_ms[count:]
        self.headers = {row: pairs for row, pairs in self.headers.items() if row < count}

    def _take_quickly(self, header: RecordBatchHeader, data: bytes, start: int) -> bool:
        """Add all records of a batch; return False if its layout is unusual: then the caller must
        truncate the columns.
        """
        records, position = data, HEADER_BYTES
        if header.compression is not Compression.NONE:
            packed = memoryview(data)[HEADER_BYTES : header.size_bytes]
            records = bytes(decompress(header.compression, packed, RECORDS_BYTES_MAX))
            position = 0
        elif header.size_bytes != len(data):
            return False
        try:
            if not self._walk(header, records, position):
                return False
        except (IndexError, OverflowError, UnicodeDecodeError):
            return False
        if header.uses_append_time:
            count = len(self) - start
            self.timestamps_ms[start:] = array("q", [header.max_timestamp_ms]) * count
        return max(self.offsets[start:], default=header.last_offset) <= header.last_offset

    def _walk(self, header: RecordBatchHeader, data: bytes, position: int) -> bool:
        """Add the records from `position` to the end; return False if the bytes are not such
        records.
        """
        times: list[int] = []
        offsets: list[int] = []
        add_key, add_value = self.keys.append, self.values.append
        add_time, add_offset = times.append, offsets.append
        number = signs = 0  # signs: the lowest bits of numbers that must not be negative
        for _ in range(header.record_count):
            size, position = _number(data, position)
            end = position + (size >> 1)
            position += 1  # the attributes, which are unused
            for add_number in (add_time, add_offset):
                number = data[position]
                position += 1
                if number >= _CONTINUED:
                    number += data[position] * _CONTINUED - _CONTINUED
                    position += 1
                    if number >= _LONG:
                        number, position = _continued(data, number, position)
                add_number(number)
            signs |= size | number
            for add in (add_key, add_value):
                number = data[position]
                position += 1
                if number == _ABSENT:
                    add(None)
                    continue
                if number >= _CONTINUED:
                    number += data[position] * _CONTINUED - _CONTINUED
                    position += 1
                    if number >= _LONG:
                        number, position = _continued(data, number, position)
                signs |= number
                stop = position + (number >> 1)
                add(data[position:stop])
                position = stop
            position = self._take_headers(data, position) if data[position] else position + 1
            if position != end:
                return False
        base_offset, first_ms = header.base_offset, header.first_timestamp_ms
        self.offsets.extend([base_offset + (offset >> 1) for offset in offsets])
        self.timestamps_ms.extend([first_ms + ((time >> 1) ^ -(time & 1)) for time in times])
        return position == len(data) and not signs & 1

    def _take_headers(self, data: bytes, position: int) -> int:
        """Add the headers of the last record; return the position of their end, -1 if they are
        damaged.
        """
        count, position = _number(data, position)
        headers: list[Header] = []
        signs = count
        for _ in range(count >> 1):
            size, position = _number(data, position)
            signs |= size
            stop = position + (size >> 1)
            name = data[position:stop].decode()
            size, position = _number(data, stop)
            if size == _ABSENT:
                headers.append((name, None))
                continue
            signs |= size
            stop = position + (size >> 1)
            headers.append((name, data[position:stop]))
            position = stop
        self.headers[len(self.values) - 1] = tuple(headers)
        return -1 if signs & 1 else position


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return an encoded number, still in zigzag form, and the position of its end."""
    number = data[position]
    if number < _CONTINUED:
        return number, position + 1
    number += data[position + 1] * _CONTINUED - _CONTINUED
    position += 2
    return (number, position) if number < _LONG else _continued(data, number, position)


def _continued(data: bytes, number: int, position: int) -> tuple[int, int]:
    """Return a number whose first two bytes were read and that has more bytes, and the position of
    its end.
    """
    number -= _LONG
    for shift in range(14, _BITS_MAX, 7):
        byte = data[position]
        position += 1
        if byte < _CONTINUED:
            return number | byte << shift, position
        number |= (byte - _CONTINUED) << shift
    raise OverflowError("a number that does not end")


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
        self._bytes += len(data) + sum(len(value) for value in values if value is not None)
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
        microseconds = (ms * 1_000 for ms in values_ms)
        bounded = [max(-TIMESTAMP_US_MAX, min(TIMESTAMP_US_MAX, us)) for us in microseconds]
        return _numbers(_TIMESTAMP, array("q", bounded))


def _numbers(kind: pa.DataType, values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _headers(columns: RecordColumns) -> pa.Array:
    count, headers = len(columns), columns.headers
    if not headers:
        return pa.nulls(count, _HEADERS)
    rows = [headers.get(row) for row in range(count)]
    flat = list(chain.from_iterable(row for row in rows if row is not None))
    items = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in flat], pa.string()),
            pa.array([content for _, content in flat], pa.binary()),
        ],
        fields=list(_HEADER),
    )
    ends = array("i", accumulate((len(row) if row else 0 for row in rows), initial=0))
    return pa.ListArray.from_arrays(
        _numbers(pa.int32(), ends),
        items,
        type=_HEADERS,
        mask=pa.array([row is None for row in rows], pa.bool_()),
    )

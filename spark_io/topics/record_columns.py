"""Columns of the records of batches.

Leaves batches with an unusual layout to `record_batch.parse_records`, and Arrow to `topic_rows`.

A record is a sequence of numbers of variable length, so Python must step from field to field. Here
this is one loop without calls, about 1 µs per record. Batches that it cannot read go to the slow
parser, which decides whether they are damaged.

Invariants: the columns have equal length, also after an error; the records are those that
`parse_records` returns.

Source: Kafka's protocol guide, "Record".
"""

from array import array
from typing import Final

from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    Compression,
    RecordBatchHeader,
    parse_records,
)
from broker_layer.kafka.record_batch.compression import decompress

RECORDS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum size of one batch's records after decompression, in bytes."""

_CONTINUED: Final = 0x80
_LONG: Final = _CONTINUED * _CONTINUED
"""Minimum sum of a number's first two bytes if more bytes follow."""
_BITS_MAX: Final = 64
_ABSENT: Final = 1
"""Encoded length, -1, of a missing key or value."""

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
        self.headers = {row: found for row, found in self.headers.items() if row < count}

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
        self.offsets.extend([base_offset + (each >> 1) for each in offsets])
        self.timestamps_ms.extend([first_ms + ((each >> 1) ^ -(each & 1)) for each in times])
        return position == len(data) and not signs & 1

    def _take_headers(self, data: bytes, position: int) -> int:
        """Add the headers of the last record; return the position of their end, -1 if they are
        damaged.
        """
        count, position = _number(data, position)
        found: list[Header] = []
        signs = count
        for _ in range(count >> 1):
            size, position = _number(data, position)
            signs |= size
            stop = position + (size >> 1)
            name = data[position:stop].decode()
            size, position = _number(data, stop)
            if size == _ABSENT:
                found.append((name, None))
                continue
            signs |= size
            stop = position + (size >> 1)
            found.append((name, data[position:stop]))
            position = stop
        self.headers[len(self.values) - 1] = tuple(found)
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

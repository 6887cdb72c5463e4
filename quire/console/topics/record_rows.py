"""Records of a page, decoded and cut. Pure.

Leaves fetching them to `record_reading`.

Invariant: nothing of a record is longer on the page than BYTES_SHOWN_MAX; a cut says the full size.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    Record,
    RecordBatchHeader,
    parse_records,
    read_header,
)
from quire.console.ledger.payloads import printable

BYTES_SHOWN_MAX: Final = 4_096
HEADERS_SHOWN_MAX: Final = 20
UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum number of bytes of one batch after decompression."""
FORMS: Final = ("auto", "text", "hex")


@dataclass(frozen=True, slots=True)
class ShownData:
    """A key, a value or a header's value as the page shows it."""

    text: str
    form: str
    """null, text, JSON or hex."""
    size_bytes: int

    @property
    def is_cut(self) -> bool:
        """Whether only the first bytes are shown."""
        return self.size_bytes > BYTES_SHOWN_MAX


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record as the page shows it."""

    offset: int
    time_ms: int
    key: ShownData
    value: ShownData
    headers: Sequence[tuple[str, ShownData]]
    headers_left_out: int
    is_transactional: bool


def shown_data(data: bytes | None, form: str = "auto") -> ShownData:
    """Return bytes as text, or as hex if they are none, or in the wanted form; JSON is as it is."""
    if data is None:
        return ShownData("null", "null", 0)
    cut = data[:BYTES_SHOWN_MAX]
    if form == "hex":
        return ShownData(cut.hex(" "), "hex", len(data))
    try:
        # A character may be cut in the middle.
        text = cut.decode(errors="replace" if form == "text" or len(cut) < len(data) else "strict")
    except UnicodeDecodeError:
        return ShownData(cut.hex(" "), "hex", len(data))
    if form == "auto" and ("\ufffd" in text[:-3] or "\0" in text):
        return ShownData(cut.hex(" "), "hex", len(data))
    return ShownData(printable(text), "JSON" if _is_json(text) else "text", len(data))


def batches_of(data: bytes) -> Iterator[tuple[RecordBatchHeader, Iterator[Record]]]:
    """Yield the complete batches with data, and the records of each, whose iteration raises
    RecordBatchError for damage; leave out markers of transactions.
    """
    view, position = memoryview(data), 0
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        end = position + header.size_bytes
        if header.size_bytes < HEADER_BYTES or end > len(view):
            return
        if not header.is_control:
            yield header, parse_records(view[position:end], bytes_max=UNPACKED_BYTES_MAX)
        position = end


def next_offset_of(data: bytes) -> int | None:
    """Return the offset after the last complete batch; None if there is none."""
    view, position, found = memoryview(data), 0, None
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        position += header.size_bytes
        if header.size_bytes < HEADER_BYTES or position > len(view):
            break
        found = header.next_offset
    return found


def first_time_ms(data: bytes, offset: int) -> int | None:
    """Return the time of the first record at or after an offset; None if there is none."""
    try:
        for header, records in batches_of(data):
            if header.next_offset <= offset:
                continue
            for each in records:
                if each.offset >= offset:
                    return each.timestamp_ms
    except RecordBatchError:
        return None
    return None


def row_of(record: Record, *, is_transactional: bool, form: str) -> RecordRow:
    """Return a record as the page shows it."""
    headers = [
        (name[:BYTES_SHOWN_MAX], shown_data(value))
        for name, value in record.headers[:HEADERS_SHOWN_MAX]
    ]
    return RecordRow(
        record.offset,
        record.timestamp_ms,
        shown_data(record.key, form),
        shown_data(record.value, form),
        headers,
        max(0, len(record.headers) - HEADERS_SHOWN_MAX),
        is_transactional,
    )


def _is_json(text: str) -> bool:
    """Return whether a text is an object or an array of JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

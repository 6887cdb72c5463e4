"""Records from a partition's leader for one page, decoded and cut.

Invariants: a page has at most ROWS_MAX records, of at most FETCHES_MAX answers; with a key, at most
SCANNED_MAX records are read, and the page says where it stopped; nothing of a record is longer on
the page than BYTES_SHOWN_MAX, and a cut says the full size.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_layer.kafka.errors import KafkaFrameError, RecordBatchError
from broker_layer.kafka.messages import FETCH_VERSION, Fetched, decode_fetched, encode_fetch
from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    Record,
    RecordBatchHeader,
    parse_records,
    read_header,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import PeerAddress, PeerError
from quire.console.entries import printable
from quire.operate.brokers import BrokerAccess, NoBrokerError, require
from quire.operate.topics import EARLIEST, LATEST, Found, Place, leader_of, offsets_at

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
    view, position, offset = memoryview(data), 0, None
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        position += header.size_bytes
        if header.size_bytes < HEADER_BYTES or position > len(view):
            break
        offset = header.next_offset
    return offset


def first_time_ms(data: bytes, offset: int) -> int | None:
    """Return the time of the first record at or after an offset; None if there is none."""
    try:
        for header, records in batches_of(data):
            if header.next_offset <= offset:
                continue
            for record in records:
                if record.offset >= offset:
                    return record.timestamp_ms
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


ROWS_MAX: Final = 50
FETCHES_MAX: Final = 20
SCANNED_MAX: Final = 10_000
"""Maximum number of records that are read to find those with a key."""
FETCH_BYTES_MAX: Final = 1024 * 1024
TIME_BYTES_MAX: Final = 4_096
"""Bytes that are fetched for the time of one record; a leader sends one batch at least."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records that a page asks for."""

    place: Place
    offset: int
    key: bytes | None = None
    """Only records with this key; None for all."""
    form: str = "auto"


@dataclass(slots=True)
class RecordPage:
    """Records of one page."""

    start: int
    end: int
    """The first and the next offset of the partition."""
    rows: list[RecordRow] = field(default_factory=list)
    scanned: int = 0
    next_offset: int | None = None
    """Offset from which the next page begins; None at the end."""
    problem: str = ""
    """Why the records after these are not shown."""

    @property
    def is_full(self) -> bool:
        """Whether no more records are read."""
        return len(self.rows) >= ROWS_MAX or self.scanned >= SCANNED_MAX


async def read_records(
    brokers: BrokerAccess, leaders: Mapping[Place, PeerAddress], wanted: Wanted
) -> RecordPage:
    """Read records at or after an offset. Raises NoBrokerError, TopicRefusedError."""
    leader = leader_of(leaders, wanted.place)
    start = await _edge(brokers, leaders, wanted.place, EARLIEST)
    end = await _edge(brokers, leaders, wanted.place, LATEST)
    page = RecordPage(start, end)
    position = max(wanted.offset, start)
    for _ in range(FETCHES_MAX):
        if position >= end or page.is_full:
            break
        fetched = await fetch(brokers, leader, wanted.place, position)
        require(fetched.error_code)
        try:
            after = _add(page, fetched.records, position, wanted)
        except RecordBatchError as error:
            page.problem = str(error)
            position = max(position + 1, next_offset_of(fetched.records) or 0)
            break
        if after <= position:
            page.problem = "the leader returned no complete batch"
            break
        position = after
    page.next_offset = position if position < end else None
    return page


async def fetch(
    brokers: BrokerAccess,
    leader: PeerAddress,
    place: Place,
    offset: int,
    *,
    max_wait_ms: int = 0,
    bytes_max: int = FETCH_BYTES_MAX,
) -> Fetched:
    """Fetch batches from an offset on. Raises NoBrokerError."""
    body = encode_fetch(
        place.topic, place.partition, offset, bytes_max=bytes_max, max_wait_ms=max_wait_ms
    )
    try:
        data = await brokers.peers.call(
            leader, ApiKey.FETCH, FETCH_VERSION, body, timeout_s=brokers.timeout_s
        )
        return decode_fetched(data)
    except (PeerError, KafkaFrameError) as error:
        text = f"broker {leader.broker_id} does not respond: {error}"
        raise NoBrokerError(text, try_next="check its log, then retry") from error


async def time_at(
    brokers: BrokerAccess, leaders: Mapping[Place, PeerAddress], place: Place, offset: int
) -> int | None:
    """Return the time of the first record at or after an offset, in ms; None if it is unknown."""
    leader = leaders.get(place)
    if leader is None:
        return None
    try:
        fetched = await fetch(brokers, leader, place, offset, bytes_max=TIME_BYTES_MAX)
    except NoBrokerError:
        return None
    return None if fetched.error_code else first_time_ms(fetched.records, offset)


async def _edge(
    brokers: BrokerAccess, leaders: Mapping[Place, PeerAddress], place: Place, time_ms: int
) -> int:
    position: Found | None = (await offsets_at(brokers, leaders, [place], time_ms)).get(place)
    if position is None:
        text = f"the leader of {place.topic}-{place.partition} does not answer"
        raise NoBrokerError(text, try_next=f"quire topic show {place.topic}")
    return position.offset


def _add(page: RecordPage, data: bytes, position: int, wanted: Wanted) -> int:
    """Add the records of an answer; return the offset after the last one that was looked at."""
    for header, records in batches_of(data):
        for record in records:
            if record.offset < position:
                continue
            if page.is_full:
                return record.offset
            page.scanned += 1
            if wanted.key is None or record.key == wanted.key:
                is_transactional = header.is_transactional
                row = row_of(record, is_transactional=is_transactional, form=wanted.form)
                page.rows.append(row)
    return next_offset_of(data) or position

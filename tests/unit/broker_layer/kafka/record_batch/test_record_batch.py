"""Tests of record batches, compared with kafka-python, and with damaged bytes."""

import contextlib
import gzip
import struct
from collections.abc import Callable, Sequence

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    Compression,
    ControlKind,
    DecompressionTooLargeError,
    Producer,
    Record,
    RecordBatchError,
    build_batch,
    build_control_batch,
    check_batch,
    check_whole,
    keyless_records,
    parse_records,
    place,
    read_control,
    read_header,
    read_last_offset,
    stamp,
)
from broker_layer.kafka.record_batch.compression import XERIAL_HEADER
from broker_layer.kafka.record_batch.header import seal

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

BYTES_MAX = 1 << 20
KINDS = list(Compression)

texts = st.text(max_size=6)
blobs = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(texts, blobs), max_size=3).map(tuple)
contents = st.tuples(st.integers(0, 2**41), blobs, blobs, headers)


def numbered(found: Sequence[Content], base: int = 0) -> list[Record]:
    return [Record(base + number, *each) for number, each in enumerate(found)]


def one_batch(kind: Compression = Compression.NONE, count: int = 3) -> bytearray:
    records = [Record(number, 1000 + number, b"key", b"value" * 20) for number in range(count)]
    return build_batch(records, compression=kind)


@pytest.mark.parametrize("kind", KINDS)
@given(found=st.lists(contents, min_size=1, max_size=12), base=st.integers(0, 2**50))
@settings(max_examples=40, deadline=None)
def test_library_parses_built_batches(kind: Compression, found: list[Content], base: int) -> None:
    records = numbered(found, base)
    batch = build_batch(records, compression=kind, producer=Producer(7, 3, 11), leader_epoch=5)
    assert list(parse_records(batch, bytes_max=BYTES_MAX)) == records
    header = read_header(batch)
    check_batch(batch, header)
    assert (header.base_offset, header.leader_epoch) == (base, 5)
    assert header.last_offset == base + len(records) - 1
    assert header.next_offset == base + len(records)
    assert header.last_sequence == 11 + len(records) - 1
    if kind == Compression.NONE:  # the library needs more packages for other codecs
        theirs = MemoryRecords(bytes(batch)).next_batch()
        assert theirs is not None
        assert theirs.validate_crc()
        assert [
            (their.offset, their.timestamp, their.key, their.value, tuple(their.headers))
            for their in theirs
        ] == [tuple(record) for record in records]


@given(found=st.lists(contents, min_size=1, max_size=12), packed=st.sampled_from([0, 1]))
@settings(max_examples=40, deadline=None)
def test_batches_of_library_are_parsed(found: list[Content], packed: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=packed,
        is_transactional=True,
        producer_id=9,
        producer_epoch=1,
        base_sequence=2**31 - 1,
        batch_size=1 << 20,
    )
    for number, (timestamp, key, value, pairs) in enumerate(found):
        builder.append(number, timestamp, key, value, list(pairs))
    batch = bytes(builder.build())
    header = read_header(batch)
    check_batch(batch, header)
    assert header.is_transactional
    assert header.has_producer
    assert header.last_sequence == (2**31 - 1 + len(found) - 1) % 2**31
    assert header.max_timestamp_ms == max(each[0] for each in found)
    assert list(parse_records(batch, bytes_max=BYTES_MAX)) == numbered(found)


@pytest.mark.parametrize("kind", KINDS)
def test_large_batches_of_every_compression(kind: Compression) -> None:
    records = [Record(number, number, None, bytes([number % 251]) * 997) for number in range(500)]
    batch = build_batch(records, compression=kind)
    assert list(parse_records(batch, bytes_max=BYTES_MAX)) == records
    with pytest.raises(DecompressionTooLargeError) as raised:
        list(parse_records(batch, bytes_max=400_000))
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    exactly = 500 * 997 + 500 * 9  # about its decompressed size: the limit itself is allowed
    list(parse_records(batch, bytes_max=exactly + 2048))


def with_records(kind: Compression, packed: bytes, count: int = 1) -> bytearray:
    batch = build_batch([Record(0, 0, None, None)], compression=kind)
    del batch[HEADER_BYTES:]
    batch += packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    seal(batch)
    return batch


BOMBS = {
    Compression.GZIP: gzip.compress(bytes(50_000_000)),
    Compression.SNAPPY: bytes(cramjam.snappy.compress_raw(bytes(20_000_000))),
    Compression.LZ4: bytes(cramjam.lz4.compress(bytes(50_000_000))),
    Compression.ZSTD: bytes(cramjam.zstd.compress(bytes(50_000_000))),
}


@pytest.mark.parametrize("kind", list(BOMBS))
def test_decompression_bombs_are_refused(kind: Compression) -> None:
    batch = with_records(kind, BOMBS[kind])
    with pytest.raises(DecompressionTooLargeError):
        list(parse_records(batch, bytes_max=BYTES_MAX))


@pytest.mark.parametrize("kind", list(BOMBS))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_compression_raises_batch_error(kind: Compression, data: st.DataObject) -> None:
    packed = bytearray(one_batch(kind)[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    with contextlib.suppress(RecordBatchError):
        list(parse_records(with_records(kind, bytes(packed), 3), bytes_max=BYTES_MAX))


@given(packed=st.binary(max_size=80), count=st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=300, deadline=None)
def test_hostile_records_raise_batch_error(packed: bytes, count: int) -> None:
    for number in (count, len(packed) // 7, 1):
        with contextlib.suppress(RecordBatchError):
            list(parse_records(with_records(Compression.NONE, packed, number), bytes_max=100))


def test_raw_and_xerial_snappy() -> None:
    plain = bytes(one_batch()[HEADER_BYTES:])
    raw = with_records(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(plain)), 3)
    struct.pack_into(">i", raw, 23, 2)
    assert [record.value for record in parse_records(raw, bytes_max=BYTES_MAX)] == [
        b"value" * 20
    ] * 3


def test_blocks_of_xerial_snappy_are_limited_in_number() -> None:
    empty = b"\0\0\0\1" + bytes(cramjam.snappy.compress_raw(b""))
    batch = with_records(Compression.SNAPPY, XERIAL_HEADER + empty * (BYTES_MAX // 1024 + 2))
    with pytest.raises(DecompressionTooLargeError, match=str(BYTES_MAX)):
        list(parse_records(batch, bytes_max=BYTES_MAX))


def test_headers_are_not_read_where_they_are_not_needed() -> None:
    many = Record(0, 0, b"key", b"value", (("name", b"content"),) * 1_000)
    batch = build_batch([many, Record(1, 5, b"other", None, (("name", None),))])
    found = list(parse_records(batch, bytes_max=BYTES_MAX, with_headers=False))
    assert found == [Record(0, 0, b"key", b"value"), Record(1, 5, b"other", None)]
    batch[batch.index(b"name") - 1] ^= 0xFF  # the length of the first name
    with pytest.raises(RecordBatchError):
        list(parse_records(batch, bytes_max=BYTES_MAX))
    assert list(parse_records(batch, bytes_max=BYTES_MAX, with_headers=False)) == found
    assert keyless_records(batch, read_header(batch), records_max=9, bytes_max=BYTES_MAX) == []


def test_lz4_blocks_are_independent() -> None:
    packed = bytes(one_batch(Compression.LZ4)[HEADER_BYTES:])
    plain = bytes(one_batch()[HEADER_BYTES:])
    assert bytes(cramjam.lz4.decompress(packed)) == plain
    assert packed[4] & 0x20  # the flag of independent blocks


def test_place_and_stamp() -> None:
    batch = one_batch()
    before = read_header(batch)
    place(memoryview(batch), 2**40, 77)
    check_batch(batch, read_header(batch))
    placed = read_header(batch)
    assert placed == before._replace(base_offset=2**40, leader_epoch=77)
    stamp(batch, 99_999)
    stamped = read_header(batch)
    check_whole(batch, stamped)
    assert stamped.uses_append_time
    found = list(parse_records(batch, bytes_max=BYTES_MAX))
    assert [record.timestamp_ms for record in found] == [99_999] * 3
    assert [record.offset for record in found] == [2**40 + number for number in range(3)]
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs is not None
    assert theirs.validate_crc()
    assert {their.timestamp for their in theirs} == {99_999}


@given(st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_last_offset_equals_full_header(base: int, delta: int) -> None:
    data = build_batch([Record(0, 1_000, None, b"a", ())])
    place(data, base, 3)
    struct.pack_into(">i", data, 23, delta)
    assert read_last_offset(data) == read_header(data).last_offset
    with pytest.raises(RecordBatchError):
        read_last_offset(data[: HEADER_BYTES - 1])


def test_read_header_at_position() -> None:
    batch = one_batch()
    assert read_header(b"12345" + batch, 5) == read_header(batch)
    for data, start in ((b"", 0), (batch[:60], 0), (batch, len(batch) - 60), (batch, -1)):
        with pytest.raises(RecordBatchError):
            read_header(data, start)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda batch: batch.append(0), ErrorCode.INVALID_RECORD),
        (lambda batch: batch.pop(), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch.__setitem__(16, 1), ErrorCode.INVALID_RECORD),
        (lambda batch: batch.__setitem__(70, batch[70] ^ 1), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: struct.pack_into(">i", batch, 8, -5), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_check_batch_refuses(change: Callable[[bytearray], object], code: ErrorCode) -> None:
    batch = one_batch()
    change(batch)
    with pytest.raises(RecordBatchError) as raised:
        check_batch(batch, read_header(batch))
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("layout", "offset", "value", "code"),
    [
        (">h", 21, 0x20, ErrorCode.INVALID_RECORD),
        (">h", 21, 0x10, ErrorCode.INVALID_RECORD),
        (">h", 21, 0x40, ErrorCode.INVALID_RECORD),
        (">h", 21, 0x05, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (">i", 23, 5, ErrorCode.INVALID_RECORD),
        (">i", 23, -1, ErrorCode.INVALID_RECORD),
        (">i", 57, 0, ErrorCode.INVALID_RECORD),
        (">i", 57, 2**31 - 1, ErrorCode.INVALID_RECORD),
        (">q", 43, 5, ErrorCode.INVALID_RECORD),
        (">qhi", 43, (5, -1, 0), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_check_batch_refuses_a_sealed_batch(
    layout: str, offset: int, value: int | tuple[int, ...], code: ErrorCode
) -> None:
    batch = one_batch()
    struct.pack_into(layout, batch, offset, *(value if isinstance(value, tuple) else (value,)))
    seal(batch)
    with pytest.raises(RecordBatchError) as raised:
        check_batch(batch, read_header(batch))
    assert raised.value.code == code


def test_epoch_and_sequence_without_producer_are_ignored() -> None:
    batch = one_batch()
    struct.pack_into(">h", batch, 51, 0)  # as kafkajs writes them
    struct.pack_into(">i", batch, 53, 0)
    seal(batch)
    check_batch(batch, read_header(batch))


@pytest.mark.parametrize("kind", list(ControlKind))
def test_control_batches(kind: ControlKind) -> None:
    batch = build_control_batch(kind, 5, 6, 7, 1234)
    header = read_header(batch)
    check_whole(batch, header)
    with pytest.raises(RecordBatchError):
        check_batch(batch, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, -1)
    assert header.last_sequence == -1
    assert header.max_timestamp_ms == 1234
    assert read_control(batch) == (kind, 7)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs is not None
    assert theirs.is_control_batch
    (record,) = theirs
    assert record.abort == (kind == ControlKind.ABORT)
    assert record.commit == (kind == ControlKind.COMMIT)


def test_only_markers_are_control_batches() -> None:
    with pytest.raises(RecordBatchError):
        read_control(one_batch())
    marker = build_control_batch(ControlKind.ABORT, 5, 6, 7, 0)
    for size in range(len(marker)):
        with pytest.raises(RecordBatchError):
            read_control(marker[:size])

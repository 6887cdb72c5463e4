"""Tests of the checks of a Produce's batch; the error codes are those of Apache Kafka 4.1."""

import struct

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.record_batch import (
    Compression,
    Record,
    build_batch,
    check_batch,
    keyless_records,
    parse_records,
    place,
    read_header,
)
from broker_layer.kafka.record_batch.checks import RECORDS_MAX
from broker_layer.kafka.record_batch.header import seal
from broker_layer.server.produce import read_batch

VERSION = 9


def one_batch(kind: Compression = Compression.NONE, attributes: int = 0) -> bytearray:
    records = [Record(number, 1_000 + number, None, b"value") for number in range(3)]
    batch = build_batch(records, compression=kind)
    (before,) = struct.unpack_from(">h", batch, 21)
    struct.pack_into(">h", batch, 21, before | attributes)
    seal(batch)
    return batch


def length(number: int) -> bytes:
    batch = one_batch()
    struct.pack_into(">i", batch, 8, number)
    return bytes(batch)


def magic(number: int) -> bytes:
    batch = one_batch()
    batch[16] = number
    return bytes(batch)


def test_bytes_after_batch_are_ignored_unless_another_batch() -> None:
    right = bytes(one_batch())
    for tail in (b"", b"\0" * 5, right[:11], right[:16], right[:-1]):
        header, batch = read_batch(memoryview(right + tail), VERSION, None)
        assert (bytes(batch), header) == (right, read_header(right))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(one_batch())[:40], ErrorCode.INVALID_RECORD),
        (bytes(one_batch())[:-3], ErrorCode.INVALID_RECORD),
        (length(1_000), ErrorCode.INVALID_RECORD),
        (length(20), ErrorCode.CORRUPT_MESSAGE),
        (length(-5), ErrorCode.CORRUPT_MESSAGE),
        (magic(0), ErrorCode.INVALID_RECORD),
        (magic(1), ErrorCode.INVALID_RECORD),
        (magic(3), ErrorCode.CORRUPT_MESSAGE),
        (magic(255), ErrorCode.CORRUPT_MESSAGE),
        (bytes(one_batch()) * 2, ErrorCode.INVALID_RECORD),
        (bytes(one_batch()) + magic(7), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_anything_but_one_complete_batch_is_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(RecordBatchError) as raised:
        read_batch(memoryview(data), VERSION, None)
    assert raised.value.code is code


def test_base_offset_must_be_0() -> None:
    batch = one_batch()
    place(batch, 77, -1)
    with pytest.raises(RecordBatchError) as raised:
        read_batch(memoryview(batch), VERSION, None)
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_zstd_needs_produce_version_7() -> None:
    batch = memoryview(one_batch(Compression.ZSTD))
    with pytest.raises(RecordBatchError) as raised:
        read_batch(batch, 6, None)
    assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert read_batch(batch, 7, None)[0].compression is Compression.ZSTD


def test_transaction_needs_transactional_id() -> None:
    with pytest.raises(TopicError) as raised:
        read_batch(memoryview(one_batch(attributes=0x10)), VERSION, None)
    assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_append_time_flag_of_client_is_removed() -> None:
    claimed = one_batch(attributes=0x08)
    header, batch = read_batch(memoryview(claimed), VERSION, None)
    assert not header.uses_append_time
    check_batch(batch, header)
    assert [record.timestamp_ms for record in parse_records(batch, bytes_max=1 << 10)] == [
        1_000,
        1_001,
        1_002,
    ]
    assert read_header(claimed).uses_append_time, "what came is not changed"


@pytest.mark.parametrize("kind", list(Compression))
def test_records_of_compacted_topics_have_keys(kind: Compression) -> None:
    keyed = [Record(number, 1_000, b"", b"value") for number in range(3)]
    assert not keyless_in(build_batch(keyed, compression=kind))
    two_without = [*keyed, *(Record(each, 1_000, None, b"value") for each in (3, 4))]
    assert keyless_in(build_batch(two_without, compression=kind)) == [3, 4]
    with pytest.raises(RecordBatchError) as raised:
        keyless_in(build_batch(keyed, compression=kind), bytes_max=10)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(RecordBatchError) as raised:
        keyless_in(build_batch(keyed, compression=kind), records_max=2)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def keyless_in(data: bytearray, *, records_max: int = 10, bytes_max: int = 1 << 10) -> list[int]:
    header = read_header(data)
    return keyless_records(data, header, records_max=records_max, bytes_max=bytes_max)


def test_compressed_record_count_is_limited() -> None:
    data = build_batch([Record(0, 1_000, None, b"value")], compression=Compression.GZIP)
    claim_records(data, RECORDS_MAX)
    check_batch(data, read_header(data))
    claim_records(data, RECORDS_MAX + 1)
    with pytest.raises(RecordBatchError) as raised:
        check_batch(data, read_header(data))
    assert raised.value.code is ErrorCode.INVALID_RECORD


def claim_records(data: bytearray, count: int) -> None:
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    seal(data)

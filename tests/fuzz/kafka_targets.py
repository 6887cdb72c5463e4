"""Fuzz targets for the broker's decoders of Kafka's protocol: requests and record batches.

Leaves the bookies' wire to `tests.fuzz.wire_targets`.
"""

import contextlib
import random
import struct
from typing import Final

from broker_layer.kafka import messages
from broker_layer.kafka.errors import KafkaFrameError, RecordBatchError
from broker_layer.kafka.fetch_codec import decode_fetch
from broker_layer.kafka.frames import read_request_header
from broker_layer.kafka.produce_codec import decode_produce
from broker_layer.kafka.record_batch import (
    HEADER_BYTES,
    Compression,
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    check_batch,
    parse_records,
    read_control,
    read_header,
)
from broker_layer.kafka.record_batch.header import CHECKED_START, seal
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from tests.fuzz.findings import require
from tests.fuzz.targets import KIB, ParserTarget
from tests.support.broker_layer.sample_messages import sample

UNPACKED_BYTES_MAX: Final = 16 * KIB
_START: Final = struct.Struct(">hhih")


def kafka_targets() -> list[ParserTarget]:
    """Return the targets of this module."""
    for _ in messages.warm_up():
        continue  # compilation is no allocation of an input
    return [
        ParserTarget(
            "kafka_request",
            _check_request,
            tuple(request_samples()),
            hostile=tuple(_hostile_requests()),
            fields=((0, 2), (2, 2), (8, 2)),
            allocation_factor=200,
        ),
        ParserTarget(
            "kafka_batch",
            _check_batch,
            BATCHES,
            hostile=tuple(bytes(build_control_batch(kind, 5, 6, 7, 8)) for kind in ControlKind),
            seal=_seal,
            fields=((8, 4), (16, 1), (21, 2), (23, 4), (43, 8), (57, 4)),
        ),
    ]


def _check_request(data: bytes, origin: bytes, is_sealed: bool) -> bool:
    del origin, is_sealed
    frame = memoryview(data)
    try:
        header = read_request_header(frame)
        body = frame[header.body_start :]
        if header.api_key == ApiKey.PRODUCE:
            produced = decode_produce(header.api_version, body)
            held = sum(
                len(partition.records or b"")
                for topic in produced.topics
                for partition in topic.partitions
            )
            require(held <= len(data), "records are views of the frame")
        elif header.api_key == ApiKey.FETCH:
            decode_fetch(header.api_version, body)
        else:
            messages.decode_request(header.api_key, header.api_version, body)
    except KafkaFrameError:
        return False
    return True


def _check_batch(data: bytes, origin: bytes, is_sealed: bool) -> bool:
    del origin  # parts of other samples may have come into it
    try:
        header = read_header(data)
        check_batch(data, header)
    except RecordBatchError:
        return _parse(data) and False
    is_known = is_sealed or data[CHECKED_START:] in KNOWN_BATCHES
    require(is_known, "a damaged batch passed its checks")
    return _parse(data)


def _parse(data: bytes) -> bool:
    """Parse bytes as if they were stored; only a RecordBatchError may result."""
    with contextlib.suppress(RecordBatchError):
        read_control(data)
    try:
        found = list(parse_records(data, bytes_max=UNPACKED_BYTES_MAX))
    except RecordBatchError:
        return False
    require(len(found) == read_header(data).record_count, "as many records as counted")
    return True


def _seal(data: bytearray, rng: random.Random) -> None:
    if len(data) >= HEADER_BYTES:
        if rng.random() < 0.8:
            struct.pack_into(">i", data, 8, len(data) - 12)
        seal(data)


def request_samples() -> list[bytes]:
    """Return a request of each version of each API, without its length."""
    rng = random.Random(11)
    found = []
    for api_key, served in ADVERTISED.items():
        name = "".join(part.capitalize() for part in api_key.name.split("_"))
        if api_key in (ApiKey.PRODUCE, ApiKey.FETCH):
            continue
        for version in range(served.min, served.max + 1):
            message = sample(getattr(messages, f"{name}Request"), version, rng)
            found.append(_frame(api_key, version, bytes(messages.encode_request(message, version))))
    batch = bytes(build_batch([Record(0, 0, b"k", b"v")]))
    plain = struct.pack(">hhiih1siii", -1, 1, 500, 1, 1, b"t", 1, 5, len(batch))
    found.append(_frame(ApiKey.PRODUCE, 3, plain + batch))
    compact = b"\0" + struct.pack(">hi", 1, 500) + b"\x02\x02t\x02" + struct.pack(">i", 5)
    found.append(_frame(ApiKey.PRODUCE, 9, compact + bytes([len(batch) + 1]) + batch + b"\0\0\0"))
    limits = struct.pack(">iiiibii", -1, 500, 1, 1000, 1, 9, 8)
    partition = struct.pack(">iiqiqi", 3, 1, 77, -1, -1, 1000) + b"\0"
    for version, topic in ((12, b"\x02t"), (16, bytes(range(16)))):
        body = limits[4:] if version >= 15 else limits
        body += b"\x02" + topic + b"\x02" + partition + b"\0"
        body += b"\x02" + topic + b"\x02" + bytes(4) + b"\0" + b"\x01\0"
        found.append(_frame(ApiKey.FETCH, version, body))
    plain = struct.pack(">iiiibih1siiqi", -1, 500, 1, 1000, 0, 1, 1, b"t", 1, 3, 77, 1000)
    found.append(_frame(ApiKey.FETCH, 4, plain))
    return found


def _frame(api_key: ApiKey, version: int, body: bytes) -> bytes:
    tags = b"\0" if version >= ADVERTISED[api_key].flexible_from else b""
    return _START.pack(api_key, version, 7, -1) + tags + body


def _hostile_requests() -> list[bytes]:
    endless = b"\xff" * 60_000
    return [
        _frame(key, served.max, body)
        for key, served in ADVERTISED.items()
        for body in (endless, b"\xff\xff\xff\xff\x0f" + bytes(60_000), b"\x7f" * 2_000)
    ]


def _batches() -> list[bytearray]:
    rng = random.Random(12)
    few = [Record(0, 5, b"key", b"value", (("header", b"x"), ("", None)))]
    many = [Record(9 + number, number, None, rng.randbytes(20) + bytes(60)) for number in range(12)]
    made = [build_batch(few, compression=kind) for kind in Compression]
    made += [
        build_batch(many, compression=kind, producer=Producer(5, 1, 2**31 - 3))
        for kind in Compression
    ]
    made.append(build_batch(few, producer=Producer(5, 1, 0), is_transactional=True))
    return made


BATCHES: Final = tuple(bytes(batch) for batch in _batches())
KNOWN_BATCHES: Final = frozenset(batch[CHECKED_START:] for batch in BATCHES)

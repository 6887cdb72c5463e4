"""Frames are found at every split of the stream, and malformed frames are refused."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.wire.errors import FrameError
from bookie.wire.frames import (
    ADD_RECOVERY,
    BODY_BYTES_AT_FIRST,
    BODY_BYTES_TRUSTED_MAX,
    FIRST_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    RECEIVE_BUFFER_BYTES,
    REQUEST_BYTES_MAX,
    Frame,
    FrameAssembler,
    FrameKind,
    frame_header,
)


def _feed(assembler: FrameAssembler, data: bytes, chunk: int = RECEIVE_BUFFER_BYTES) -> list[Frame]:
    frames: list[Frame] = []
    while data:
        room = assembler.get_buffer()
        count = min(len(room), chunk, len(data))
        assert count, "there is always room for one more byte"
        room[:count] = data[:count]
        data = data[count:]
        frames += assembler.buffer_updated(count)
    return frames


def _frame(kind: FrameKind, request_id: int, body: bytes, flags: int = 0) -> bytes:
    return frame_header(kind, request_id, len(body), flags) + body


def _seen(frames: list[Frame]) -> list[tuple[FrameKind, int, int, bytes]]:
    return [(frame.kind, frame.flags, frame.request_id, bytes(frame.body)) for frame in frames]


def test_golden_header() -> None:
    header = frame_header(FrameKind.ADD, 0x01020304, 0x00ABCDEF, ADD_RECOVERY)
    assert header.hex() == "46510301" + "04030201" + "efcdab00"


STREAM = [
    (FrameKind.REQUEST, 0, 1, b"hello"),
    (FrameKind.REPLY, 0, 2, b""),
    (FrameKind.ADD, ADD_RECOVERY, 3, b"x" * 100),
    (FrameKind.ACKS, 0, 0, bytes(16)),
    (FrameKind.ENTRIES, 0, 2**32 - 1, bytes(range(50))),
]
STREAM_BYTES = b"".join(_frame(kind, rid, body, flags) for kind, flags, rid, body in STREAM)


def test_one_byte_at_a_time() -> None:
    assert _seen(_feed(FrameAssembler(), STREAM_BYTES, chunk=1)) == STREAM


@pytest.mark.parametrize("split", range(len(STREAM_BYTES) + 1))
def test_every_split_point(split: int) -> None:
    assembler = FrameAssembler()
    frames = _feed(assembler, STREAM_BYTES[:split]) + _feed(assembler, STREAM_BYTES[split:])
    assert _seen(frames) == STREAM
    assert not assembler.is_mid_frame


def test_is_mid_frame() -> None:
    assembler = FrameAssembler()
    assert not assembler.is_mid_frame
    for part in STREAM_BYTES[:1], STREAM_BYTES[1:14]:
        assert _feed(assembler, part) == []
        assert assembler.is_mid_frame


@pytest.mark.parametrize(
    "size",
    [RECEIVE_BUFFER_BYTES - 12, RECEIVE_BUFFER_BYTES, BODY_BYTES_AT_FIRST, 5 * 1024 * 1024 + 3],
)
def test_large_bodies_grow_in_steps(size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    stream = _frame(FrameKind.ADD, 7, body[:size]) + STREAM_BYTES
    frames = _feed(FrameAssembler(FRAME_BYTES_MAX), stream, chunk=70_001)
    assert _seen(frames) == [(FrameKind.ADD, 0, 7, body[:size]), *STREAM]


def test_an_announced_frame_costs_little_until_it_arrives() -> None:
    assembler = FrameAssembler(FRAME_BYTES_MAX)
    _feed(assembler, frame_header(FrameKind.ADD, 1, FRAME_BYTES_MAX))
    assert len(assembler.get_buffer()) == BODY_BYTES_AT_FIRST


@pytest.mark.parametrize(
    ("sent_before", "given"),
    [
        ([], BODY_BYTES_AT_FIRST),
        ([300_000, 100_000], 300_000),
        ([3 * BODY_BYTES_TRUSTED_MAX], BODY_BYTES_TRUSTED_MAX),
    ],
)
def test_first_allocation_is_the_size_of_an_earlier_frame(
    sent_before: list[int], given: int
) -> None:
    assembler = FrameAssembler(FRAME_BYTES_MAX)
    for size in sent_before:
        assert len(_feed(assembler, _frame(FrameKind.ADD, 1, bytes(size)))) == 1
    _feed(assembler, frame_header(FrameKind.ADD, 1, FRAME_BYTES_MAX))
    assert len(assembler.get_buffer()) == given


def test_first_allocation_is_at_most_the_trusted_size() -> None:
    assembler = FrameAssembler(FRAME_BYTES_MAX, trusted_bytes_max=2 * BODY_BYTES_TRUSTED_MAX)
    assert (
        len(_feed(assembler, _frame(FrameKind.ENTRIES, 1, bytes(4 * BODY_BYTES_TRUSTED_MAX)))) == 1
    )
    _feed(assembler, frame_header(FrameKind.ENTRIES, 1, FRAME_BYTES_MAX))
    assert len(assembler.get_buffer()) == 2 * BODY_BYTES_TRUSTED_MAX


def test_body_is_never_reused() -> None:
    assembler = FrameAssembler()
    (first,) = _feed(assembler, _frame(FrameKind.ADD, 1, b"first"))
    (second,) = _feed(assembler, _frame(FrameKind.ADD, 2, b"other"))
    assert (bytes(first.body), bytes(second.body)) == (b"first", b"other")


def _header(magic: int, kind: int, flags: int, size: int) -> bytes:
    return struct.pack("<HBBII", magic, kind, flags, 1, size)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (_header(FRAME_MAGIC ^ 1, 1, 0, 0), "not a frame"),
        (_header(FRAME_MAGIC, 0, 0, 0), "not a frame"),
        (_header(FRAME_MAGIC, 6, 0, 0), "not a frame"),
        (_header(FRAME_MAGIC, 255, 0, 0), "not a frame"),
        (_header(FRAME_MAGIC, FrameKind.ADD, 2, 0), "unknown flags"),
        (_header(FRAME_MAGIC, FrameKind.REQUEST, ADD_RECOVERY, 0), "unknown flags"),
        (_header(FRAME_MAGIC, FrameKind.ADD, 0, FRAME_BYTES_MAX + 1), "over the limit"),
        (_header(FRAME_MAGIC, FrameKind.ADD, 0, 2**31 - 1), "over the limit"),
        (_header(FRAME_MAGIC, FrameKind.ADD, 0, 2**32 - 1), "over the limit"),  # -1 as i32
        (_header(FRAME_MAGIC, FrameKind.ADD, 0, 2**31), "over the limit"),
        (_header(FRAME_MAGIC, FrameKind.REQUEST, 0, REQUEST_BYTES_MAX + 1), "over the limit"),
        (b"GET / HTTP/1.1\r\n", "not a frame"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", "not a frame"),  # TLS
    ],
)
def test_malformed_frame_is_refused(header: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        _feed(FrameAssembler(FRAME_BYTES_MAX), header)


def test_the_limit_is_low_until_it_is_raised() -> None:
    header = frame_header(FrameKind.ADD, 1, FIRST_FRAME_BYTES_MAX + 1)
    with pytest.raises(FrameError, match="over the limit"):
        _feed(FrameAssembler(), header)
    assembler = FrameAssembler()
    assembler.allow(FIRST_FRAME_BYTES_MAX + 1)
    assert _feed(assembler, header) == []


frames_strategy = st.lists(
    st.tuples(
        st.sampled_from(FrameKind),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=300) | st.integers(0, 40_000).map(bytes),
    ),
    max_size=8,
)


@given(frames_strategy, st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_any_stream_in_any_pieces(
    frames: list[tuple[FrameKind, int, bytes]], pieces: list[int]
) -> None:
    stream = b"".join(_frame(kind, rid, body) for kind, rid, body in frames)
    assembler = FrameAssembler()
    found: list[Frame] = []
    turn = 0
    while stream:
        count = pieces[turn % len(pieces)]
        found += _feed(assembler, stream[:count])
        stream, turn = stream[count:], turn + 1
    assert _seen(found) == [(kind, 0, rid, body) for kind, rid, body in frames]


@given(st.binary(max_size=400), st.integers(1, 50))
def test_garbage_is_refused_or_waited_on(garbage: bytes, chunk: int) -> None:
    assembler = FrameAssembler()
    try:
        frames = _feed(assembler, garbage, chunk)
    except FrameError:
        return
    assert sum(FRAME_HEADER_BYTES + len(frame.body) for frame in frames) <= len(garbage)


@given(st.integers(0, len(STREAM_BYTES) - 1), st.integers(0, 7))
def test_one_flipped_bit_never_raises_anything_else(position: int, bit: int) -> None:
    damaged = bytearray(STREAM_BYTES)
    damaged[position] ^= 1 << bit
    with suppress(FrameError):
        _feed(FrameAssembler(), bytes(damaged), chunk=3)

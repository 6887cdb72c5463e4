"""The answer to a read round-trips; a malformed one raises a typed error."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.wire.batch import build_batch
from bookie.wire.codec import ENTRIES_HEADER_BYTES, decode_entries, encode_entries
from bookie.wire.errors import WireError
from bookie.wire.messages import Status
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, EntryId, LedgerId


def _batches(counts: list[int]) -> list[bytearray]:
    batches, first = [], 0
    for count in counts:
        payloads = [b"entry %d" % (first + i) for i in range(count)]
        batches.append(build_batch(LedgerId(1), EntryId(first), NO_ENTRY, 0, payloads, 3))
        first += count
    return batches


def _body(counts: list[int], status: Status = Status.OK, lac: int = 5, following: int = 9) -> bytes:
    parts = encode_entries(status, EntryId(lac), EntryId(following), _batches(counts))
    return b"".join(parts)


@given(
    st.lists(st.integers(1, 5), max_size=6),
    st.sampled_from(Status),
    st.integers(NO_ENTRY, ENTRY_ID_MAX),
    st.integers(0, ENTRY_ID_MAX + 1),
)
def test_round_trip(counts: list[int], status: Status, lac: int, following: int) -> None:
    entries = decode_entries(memoryview(_body(counts, status, lac, following)))
    assert (entries.status, entries.lac, entries.next_entry_id) == (status, lac, following)
    assert [view.header.count for view in entries.batches] == counts
    assert [bytes(view.data) for view in entries.batches] == list(map(bytes, _batches(counts)))


def test_golden_header() -> None:
    body = _body([], Status.NO_SUCH_ENTRY, -1, 0x0102)
    assert body.hex() == "0100" + "0000" + "00000000" + "ff" * 8 + "0201000000000000"


def _header(status: int, count: int, lac: int, following: int) -> bytes:
    return struct.pack("<HHIqq", status, count, 0, lac, following)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(ENTRIES_HEADER_BYTES - 1),
        _header(999, 0, 0, 0),
        _header(0, 1, 0, 0),  # more batches than bytes
        _header(0, 65535, 0, 0) + bytes(_body([1])[24:]),
        _header(0, 0, 0, 0) + b"x",  # bytes behind the last batch
        _header(0, 0, -2, 0),
        _header(0, 0, 2**63 - 1, 0),
        _header(0, 0, 0, -1),
        _body([2])[:-1],
    ],
)
def test_malformed_answers(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_entries(memoryview(body))


@given(st.binary(max_size=300), st.integers(0, 3))
def test_garbage_raises_nothing_else(garbage: bytes, count: int) -> None:
    for body in garbage, _header(0, count, 0, 0) + garbage, _body([1, 2])[:90] + garbage:
        with suppress(WireError):
            decode_entries(memoryview(body))

"""Records, damage and the next record after it, in segments of a few records."""

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from bookie.log import records
from bookie.log.records import RECORD_HEADER_BYTES, Record, RecordKind, lsn_of
from bookie.log.replay import (
    CHUNK_BYTES,
    HEAD_RECORD_BYTES,
    SEARCH_BYTES,
    Damage,
    SegmentReader,
    is_whole,
    largest_synced_lsn,
    predecessor_end,
    scan,
)
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_batch
from tests.until import within

if TYPE_CHECKING:
    from bookie.files.disk import File

SEGMENT = 3
BASE = lsn_of(SEGMENT, 0)
SMALL = bytes(make_batch(1, 0, [b"small"]).data)
FENCE_BODY = records.encode_ledger(LedgerId(7))
FENCE_BYTES = RECORD_HEADER_BYTES + len(FENCE_BODY)
GARBAGE = b"\xff"


class Segment:
    """Bytes of one segment that grow by records, and the sizes of all reads."""

    def __init__(self, start: bytes = b"") -> None:
        self.data = bytearray(start)
        self.reads: list[int] = []

    @property
    def size(self) -> int:
        return len(self.data)

    async def read(self, offset: int, size: int) -> bytes:
        self.reads.append(size)
        return bytes(self.data[offset : offset + size])

    def add(self, kind: RecordKind, body: bytes, synced: int = 0) -> int:
        """Add a record and return its offset."""
        offset = self.size
        self.data += records.encode_header(kind, body, BASE + offset, synced) + body
        return offset

    def add_fence(self, synced: int = 0) -> int:
        return self.add(RecordKind.FENCE, FENCE_BODY, synced)

    def add_adds(self, size: int) -> int:
        """Add an adds record of `size` bytes, header included."""
        overhead = RECORD_HEADER_BYTES + len(make_batch(1, 0, [b""]).data)
        body = bytes(make_batch(1, 0, [bytes(size - overhead)]).data)
        assert len(body) + RECORD_HEADER_BYTES == size
        return self.add(RecordKind.ADDS, body)

    def damage(self, offset: int) -> None:
        self.data[offset] ^= 1

    def reader(self, start: int = 0, end: int | None = None) -> SegmentReader:
        return SegmentReader(cast("File", self), SEGMENT, start, end)

    def parts(self, start: int = 0, end: int | None = None) -> list[int | Damage]:
        """Return the offset of each record, and each damage, as a reader finds them."""

        async def read() -> list[int | Damage]:
            reader, found = self.reader(start, end), list[int | Damage]()
            while (part := await reader.next()) is not None:
                if isinstance(part, Damage):
                    found.append(part)
                else:
                    found += [records.offset_of(record.header.lsn) for record in part]
            return found

        return asyncio.run(within(read()))


def damage(first: int, next_offset: int | None, kind: RecordKind | None = None) -> Damage:
    return Damage(BASE + first, None if next_offset is None else BASE + next_offset, kind)


# -- records ---------------------------------------------------------------------------------------


def test_a_scan_ends_before_a_record_that_is_cut_off() -> None:
    segment = Segment()
    first, second = segment.add_fence(), segment.add(RecordKind.ADDS, SMALL)
    for size in range(second, segment.size):
        found, taken, stopper = scan(memoryview(segment.data)[:size], BASE)
        assert [record.header.lsn for record in found] == [BASE + first]
        assert taken == second
        assert (stopper is not None) == (size >= second + RECORD_HEADER_BYTES)


def test_a_record_is_as_long_as_its_header_says() -> None:
    """The part of the body that is there is a complete batch."""
    header = records.encode_header(RecordKind.ADDS, SMALL + b"\0", BASE, 0)
    found, taken, stopper = scan(memoryview(header + SMALL), BASE)
    assert (found, taken) == ([], 0)
    assert stopper == records.decode_header(header, 0, BASE)


def test_a_control_record_has_the_size_of_its_kind() -> None:
    for body in (FENCE_BODY, FENCE_BODY + b"\0", FENCE_BODY[:-1]):
        header = records.decode_header(
            records.encode_header(RecordKind.FENCE, body, BASE, 0), 0, BASE
        )
        assert header is not None
        assert is_whole(header, body) is (body == FENCE_BODY)


# -- heads -----------------------------------------------------------------------------------------


def head(end_lsn: int, flags: int = 0, kind: RecordKind = RecordKind.HEAD) -> bytes:
    segment = Segment()
    segment.add(kind, records.encode_head(end_lsn, flags))
    assert segment.size == HEAD_RECORD_BYTES
    return bytes(segment.data)


@pytest.mark.parametrize("end_lsn", [0, lsn_of(1, 500), BASE - 1])
def test_a_head_names_the_end_of_the_log_before_it(end_lsn: int) -> None:
    assert predecessor_end(head(end_lsn), SEGMENT) == end_lsn


@pytest.mark.parametrize(
    "data",
    [
        b"",
        head(5)[:-1],
        head(BASE),
        head(BASE + 1),
        head(5, records.HEAD_IS_CLEANED),
        head(5, kind=RecordKind.EXPLICIT_LAC),
    ],
    ids=["empty", "cut off", "its own place", "a later place", "cleaned", "another kind"],
)
def test_without_a_head_that_names_an_earlier_place_nothing_is_known(data: bytes) -> None:
    assert predecessor_end(data, SEGMENT) is None


def test_a_head_of_another_segment_is_no_head() -> None:
    assert predecessor_end(head(5), SEGMENT + 1) is None


# -- bounds ----------------------------------------------------------------------------------------


def test_a_reader_stays_within_its_bounds() -> None:
    segment = Segment()
    offsets = [segment.add_fence() for _ in range(4)]
    assert segment.parts() == offsets
    assert segment.parts(offsets[1]) == offsets[1:]
    assert segment.parts(offsets[1], offsets[3]) == offsets[1:3]
    assert segment.parts(0, segment.size + 100) == offsets
    assert segment.parts(offsets[2], offsets[2]) == []


def test_a_record_larger_than_a_chunk_is_read_whole() -> None:
    segment = Segment()
    offsets = [segment.add_fence(), segment.add_adds(CHUNK_BYTES + 50_000), segment.add_fence()]
    assert segment.parts() == offsets


# -- damage ----------------------------------------------------------------------------------------


def test_one_lost_record_is_named_by_its_kind() -> None:
    segment = Segment()
    offsets = [segment.add_fence(), segment.add(RecordKind.ADDS, SMALL), segment.add_fence()]
    segment.damage(offsets[2] - 1)
    assert segment.parts() == [0, damage(offsets[1], offsets[2], RecordKind.ADDS), offsets[2]]
    segment.damage(segment.size - 1)
    assert segment.parts(offsets[2]) == [damage(offsets[2], None, RecordKind.FENCE)]


def test_several_lost_records_have_no_kind() -> None:
    segment = Segment()
    offsets = [segment.add_fence() for _ in range(4)]
    segment.damage(offsets[1] - 1)
    segment.damage(offsets[1])
    segment.damage(offsets[2])
    assert segment.parts() == [damage(0, offsets[3]), offsets[3]]


def test_a_damaged_header_has_no_kind() -> None:
    segment = Segment()
    offsets = [segment.add_fence() for _ in range(3)]
    segment.damage(offsets[1])
    assert segment.parts() == [0, damage(offsets[1], offsets[2]), offsets[2]]


def test_damage_ends_with_the_range_that_is_read() -> None:
    segment = Segment()
    offsets = [segment.add_fence() for _ in range(3)]
    segment.damage(offsets[1])
    assert segment.parts(0, offsets[2]) == [0, damage(offsets[1], None)]
    assert segment.parts(0, offsets[2] - 1) == [0, damage(offsets[1], None)]


def test_what_looks_like_a_record_in_a_damaged_body_is_not_read() -> None:
    """A client can write the bytes of a record header into an entry."""
    overhead = RECORD_HEADER_BYTES + len(make_batch(1, 0, [b""]).data)
    planted = records.encode_header(RecordKind.FENCE, FENCE_BODY, BASE + overhead, 0) + FENCE_BODY
    segment = Segment()
    segment.add(RecordKind.ADDS, bytes(make_batch(1, 0, [planted]).data))
    assert records.decode_header(bytes(segment.data), overhead, BASE + overhead) is not None
    after = segment.add_fence()
    segment.damage(RECORD_HEADER_BYTES + 5)
    assert segment.parts() == [damage(0, after, RecordKind.ADDS), after]


@pytest.mark.parametrize(
    "garbage_bytes", [1, 2, 100, SEARCH_BYTES - 31, SEARCH_BYTES, SEARCH_BYTES + 1, CHUNK_BYTES]
)
def test_the_next_record_is_found_wherever_it_starts(garbage_bytes: int) -> None:
    """The search starts one byte after the damage and overlaps its pieces by almost a header."""
    for size in (garbage_bytes, garbage_bytes + RECORD_HEADER_BYTES // 2):
        segment = Segment(GARBAGE * size)
        offset = segment.add_fence()
        assert segment.parts() == [damage(0, offset), offset]


def test_a_record_across_two_pieces_of_the_search_is_found() -> None:
    for crossing in range(1, RECORD_HEADER_BYTES):
        segment = Segment(GARBAGE * (1 + SEARCH_BYTES - crossing))
        offset = segment.add_fence()
        assert segment.parts() == [damage(0, offset), offset]


def test_bytes_without_a_record_end_the_segment() -> None:
    for size in (1, RECORD_HEADER_BYTES - 1, RECORD_HEADER_BYTES + 1, SEARCH_BYTES + 1):
        segment = Segment()
        segment.add_fence()
        segment.data += GARBAGE * size
        assert segment.parts() == [0, damage(FENCE_BYTES, None)]


@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_a_damaged_record_of_about_a_chunk_is_passed(size: int) -> None:
    segment = Segment()
    offsets = [segment.add_adds(size), segment.add_fence()]
    segment.damage(offsets[1] - 1)
    assert segment.parts() == [damage(0, offsets[1], RecordKind.ADDS), offsets[1]]


def test_a_damaged_record_before_a_full_chunk_is_passed() -> None:
    segment = Segment()
    offsets = [segment.add_fence(), segment.add_adds(CHUNK_BYTES)]
    segment.damage(offsets[1] - 1)
    assert segment.parts() == [damage(0, offsets[1], RecordKind.FENCE), offsets[1]]


def test_chunks_are_small_again_after_a_large_damaged_record() -> None:
    segment = Segment()
    segment.add_adds(4 * CHUNK_BYTES)
    segment.damage(segment.size - 1)
    segment.add_adds(CHUNK_BYTES)
    segment.add_adds(CHUNK_BYTES)
    assert len(segment.parts()) == 3
    assert sum(size > CHUNK_BYTES for size in segment.reads) == 1


# -- synced ----------------------------------------------------------------------------------------


def test_the_largest_synced_place_of_a_range() -> None:
    async def largest(start: int, end: int) -> int:
        return await largest_synced_lsn(cast("File", segment), SEGMENT, start, end)

    segment = Segment()
    offsets = [segment.add_fence(synced) for synced in (10, 30, 40, 20)]
    segment.damage(offsets[2])
    assert asyncio.run(largest(0, segment.size)) == 30
    assert asyncio.run(largest(0, offsets[1])) == 10
    assert asyncio.run(largest(offsets[2], segment.size)) == 20
    assert asyncio.run(largest(offsets[2], offsets[3])) == 0


def test_records_are_views_of_the_bytes_read() -> None:
    segment = Segment()
    segment.add_fence(synced=9)
    found, taken, stopper = scan(memoryview(segment.data), BASE)
    assert (taken, stopper) == (segment.size, None)
    assert found == [Record(found[0].header, memoryview(FENCE_BODY))]
    assert found[0].header.synced_lsn == 9

"""Values of partitions: changes, stored form, and invalid bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError, StaleLeaderEpochError
from metadata.ids import LedgerId, UpdateToken
from metadata.topics.partition import (
    CHUNK_CODEC,
    EPOCHS_MAX,
    PARTITION_CODEC,
    SEGMENTS_IN_RECORD_MAX,
    SEGMENTS_PER_CHUNK,
    EpochStart,
    PartitionRecord,
    PartitionSegment,
)
from metadata.topics.topic import LEADER_EPOCH_MAX

NATURALS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, LEADER_EPOCH_MAX)


@st.composite
def drawn_segments(draw: st.DrawFn) -> PartitionSegment:
    base = draw(st.integers(0, 2**62))
    return PartitionSegment(
        ledger_id=LedgerId(draw(NATURALS)),
        base_offset=base,
        epoch=draw(EPOCHS),
        created_ms=draw(NATURALS),
        end_offset=draw(st.none() | st.integers(base, 2**63 - 1)),
        bytes=draw(st.none() | NATURALS),
        max_timestamp_ms=draw(st.none() | st.integers(-1, 2**62)),
    )


records = st.builds(
    PartitionRecord,
    leader_epoch=st.integers(-1, LEADER_EPOCH_MAX),
    log_start_offset=NATURALS,
    epochs=st.lists(st.builds(EpochStart, EPOCHS, NATURALS), max_size=4).map(tuple),
    segments=st.lists(drawn_segments(), max_size=4).map(tuple),
    first_chunk=st.integers(0, 5),
    next_chunk=st.integers(5, 10**7 - 1),
    skipped=st.integers(0, SEGMENTS_PER_CHUNK),
    token=st.binary(min_size=16, max_size=16).map(UpdateToken),
)


def segment(number: int, *, is_open: bool = False) -> PartitionSegment:
    """Return the segment of offsets 10 * number to below 10 * number + 10."""
    base = 10 * number
    ends = (None, None, None) if is_open else (base + 10, 1_000, 5_000 + number)
    return PartitionSegment(LedgerId(number), base, 1, 1_000, *ends)


def partition(count: int) -> PartitionRecord:
    return PartitionRecord(1, segments=tuple(segment(i) for i in range(count)))


def ledger_ids(segments: tuple[PartitionSegment, ...]) -> list[int]:
    return [partition_segment.ledger_id for partition_segment in segments]


@given(records)
def test_a_record_round_trips(record: PartitionRecord) -> None:
    assert PARTITION_CODEC.unpack("/a", PARTITION_CODEC.pack("/a", record)) == record


@given(st.lists(drawn_segments(), max_size=5).map(tuple))
def test_a_chunk_round_trips(chunk: tuple[PartitionSegment, ...]) -> None:
    assert CHUNK_CODEC.unpack("/a", CHUNK_CODEC.pack("/a", chunk)) == chunk


@given(st.binary(max_size=60))
def test_other_bytes_are_a_format_error(value: bytes) -> None:
    for unpack in (PARTITION_CODEC.unpack, CHUNK_CODEC.unpack):
        with pytest.raises(MetadataFormatError):
            unpack("/a", value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\x92\x02\x09", b"\x93\x02\x09\x09"),  # an epoch of three fields
        (b"\x97\x01\x0a", b"\x98\x01\x01\x0a"),  # a segment of eight fields
        (b"\x97\x01\x0a", b"\x97\x01\x70"),  # a segment that begins after its end
    ],
)
def test_a_field_out_of_range_is_a_format_error(old: bytes, new: bytes) -> None:
    record = PartitionRecord(2, epochs=(EpochStart(2, 9),), segments=(segment(1),))
    value = PARTITION_CODEC.pack("/a", record)
    assert old in value
    with pytest.raises(MetadataFormatError):
        PARTITION_CODEC.unpack("/a", value.replace(old, new))


def test_an_invalid_chunk_is_a_format_error() -> None:
    value = CHUNK_CODEC.pack("/a", (segment(1),))
    assert b"\x97\x01\x0a" in value
    with pytest.raises(MetadataFormatError, match="/a"):
        CHUNK_CODEC.unpack("/a", value.replace(b"\x97\x01\x0a", b"\x97\x01\x70"))


def test_an_empty_segment_that_begins_the_log_round_trips() -> None:
    empty = PartitionSegment(LedgerId(0), 0, 0, 0, 0, 0, -1)
    record = PartitionRecord(0, epochs=(EpochStart(0, 0),), segments=(empty,))
    assert PARTITION_CODEC.unpack("/a", PARTITION_CODEC.pack("/a", record)) == record


def test_the_segment_of_a_ledger_ends_wherever_it_is() -> None:
    for number in range(3):
        given = tuple(segment(each, is_open=each == number) for each in range(3))
        record = PartitionRecord(1, segments=given)
        base = 10 * number
        ended = record.with_segment_ended(LedgerId(number), base + 10, 1_000, 5_000 + number)
        assert ended.segments == tuple(segment(each) for each in range(3))
        assert record.last_segment == given[2]


def test_an_open_segment_is_below_nothing() -> None:
    assert not segment(0, is_open=True).is_below(100)
    assert [segment(0).is_below(each) for each in (9, 10, 11)] == [False, True, True]


def test_only_a_segment_of_the_record_ends() -> None:
    with pytest.raises(AssertionError, match="ledger 9 is in the record"):
        PartitionRecord(1, segments=(segment(0),)).with_segment_ended(LedgerId(9), 10, 1_000, None)


def test_an_unclean_end_is_that_of_the_last_segment() -> None:
    record = PartitionRecord(1, segments=(segment(0), segment(1), segment(2, is_open=True)))
    ended = record.with_unclean_end(LedgerId(2), 30, 1_000, 5_002)
    assert ended.segments == (segment(0), segment(1), segment(2))


def test_a_segment_begins_at_the_end_of_the_one_before() -> None:
    """Not where that one began, which is what counts while it is open."""
    record = PartitionRecord(1).with_segment(segment(0))
    with pytest.raises(AssertionError, match="offsets grow"):
        record.with_segment(PartitionSegment(LedgerId(9), 9, 1, 1_000))
    assert record.with_segment(PartitionSegment(LedgerId(9), 10, 1, 1_000)).last_segment
    is_open = PartitionRecord(1).with_segment(segment(0, is_open=True))
    assert is_open.with_segment(PartitionSegment(LedgerId(9), 0, 1, 1_000)).last_segment


def test_epochs_and_their_offsets_grow() -> None:
    record = PartitionRecord(4).with_epoch_start(2, 10)
    for epoch, offset in ((2, 10), (1, 10), (3, 9)):
        with pytest.raises(AssertionError, match="grow"):
            record.with_epoch_start(epoch, offset)
    with pytest.raises(AssertionError, match="epochs grow"):
        PartitionRecord(1).with_segment(segment(0)).with_segment(
            PartitionSegment(LedgerId(9), 10, 0, 1_000)
        )


def test_a_partition_is_claimed_once_in_an_epoch() -> None:
    record = PartitionRecord().claimed(0).claimed(4)
    assert record.leader_epoch == 4
    for epoch in (4, 3):
        with pytest.raises(StaleLeaderEpochError):
            record.claimed(epoch)


def test_a_segment_is_added_and_ends() -> None:
    record = PartitionRecord(1).with_segment(segment(0, is_open=True))
    assert record.last_segment == segment(0, is_open=True)
    assert record.segments[0].is_open
    ended = record.with_segment_ended(LedgerId(0), 10, 1_000, 5_000)
    assert ended.segments == (segment(0),)
    more = ended.with_segment(segment(1, is_open=True))
    assert ledger_ids(more.segments) == [0, 1]
    assert more.without_segment(LedgerId(1)) == ended


def test_epochs_are_kept_until_the_log_starts_after_them() -> None:
    record = PartitionRecord(9)
    for epoch, offset in ((0, 0), (3, 10), (4, 10), (7, 30)):
        record = record.with_epoch_start(epoch, offset)
    assert record.with_log_start(9).epochs == record.epochs
    assert [start.epoch for start in record.with_log_start(10).epochs] == [4, 7]
    assert [start.epoch for start in record.with_log_start(29).epochs] == [4, 7]
    assert [start.epoch for start in record.with_log_start(99).epochs] == [7]


def test_the_log_start_never_moves_down() -> None:
    assert PartitionRecord(0).with_log_start(7).with_log_start(3).log_start_offset == 7


def test_the_oldest_of_very_many_epochs_are_dropped() -> None:
    record = PartitionRecord(0)
    for epoch in range(EPOCHS_MAX + 2):
        record = record.with_epoch_start(epoch, 0)
    assert len(record.epochs) == EPOCHS_MAX
    assert record.epochs[0].epoch == 2


def test_segments_below_the_log_start_are_removed() -> None:
    record = partition(3).with_segment(segment(3, is_open=True))
    left, dropped = record.without_segments_below(20)
    assert (ledger_ids(left.segments), ledger_ids(dropped)) == ([2, 3], [0, 1])
    left, dropped = record.without_segments_below(10**6)
    assert (ledger_ids(left.segments), ledger_ids(dropped)) == ([3], [0, 1, 2])
    assert record.without_segments_below(9) == (record, ())


def test_the_newest_segment_stays_for_the_state_in_its_ledger() -> None:
    left, dropped = partition(3).without_segments_below(10**6)
    assert (ledger_ids(left.segments), ledger_ids(dropped)) == ([2], [0, 1])
    assert PartitionRecord().without_segments_below(5) == (PartitionRecord(), ())


def test_an_unclean_end_may_be_below_the_known_end() -> None:
    record = PartitionRecord(5, 18, (EpochStart(1, 0), EpochStart(2, 16), EpochStart(5, 18)))
    record = record.with_segment(segment(0)).with_segment(segment(1, is_open=True))
    ended = record.with_unclean_end(LedgerId(1), 14, 70, None)
    assert ended.log_start_offset == 14
    assert ended.epochs == (EpochStart(1, 0), EpochStart(2, 14), EpochStart(5, 14))
    assert ended.segments[1].end_offset == 14
    assert ended.segments[0] == segment(0)


def test_the_oldest_segments_are_spilled_beyond_the_bound() -> None:
    assert partition(SEGMENTS_IN_RECORD_MAX).spilled() == (partition(SEGMENTS_IN_RECORD_MAX), ())
    record, chunk = partition(SEGMENTS_IN_RECORD_MAX + 1).spilled()
    assert ledger_ids(chunk) == list(range(SEGMENTS_PER_CHUNK))
    assert record.segments[0].ledger_id == SEGMENTS_PER_CHUNK
    assert (record.first_chunk, record.next_chunk, record.has_chunks) == (0, 1, True)


def test_chunks_are_removed_before_segments_of_the_record() -> None:
    record, chunk = partition(SEGMENTS_IN_RECORD_MAX + 1).spilled()
    assert record.without_segments_below(10**6) == (record, ())
    some, dropped = record.without_chunked_below(chunk, 25)
    assert (some.skipped, ledger_ids(dropped)) == (2, [0, 1])
    more, dropped = some.without_chunked_below(chunk, 40)
    assert (more.skipped, ledger_ids(dropped)) == (4, [2, 3])
    rest, dropped = more.without_chunked_below(chunk, 10**6)
    assert ledger_ids(dropped) == list(range(4, SEGMENTS_PER_CHUNK))
    assert (rest.first_chunk, rest.next_chunk, rest.skipped, rest.has_chunks) == (1, 1, 0, False)
    assert ledger_ids(rest.without_segments_below(10**6)[0].segments) == [SEGMENTS_IN_RECORD_MAX]


def test_the_largest_record_is_far_below_the_limit_of_a_value() -> None:
    big = 2**62
    worst = PartitionSegment(LedgerId(big), big, LEADER_EPOCH_MAX, big, big, big, big)
    record = PartitionRecord(
        epochs=(EpochStart(LEADER_EPOCH_MAX, big),) * EPOCHS_MAX,
        segments=(worst,) * (SEGMENTS_IN_RECORD_MAX + 1),
    )
    assert len(PARTITION_CODEC.pack("/a", record)) < 200_000

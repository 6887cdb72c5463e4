"""Scrub records of bookies: their stored form (rule 9.12)."""

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, EntryId, LedgerId
from metadata.repair.scrub import (
    BAD_RANGES_MAX,
    NEVER_SCRUBBED,
    SCRUB_CODEC,
    BadRange,
    ScrubPosition,
    ScrubRecord,
)

times = st.integers(0, 2**63 - 1)
ranges = st.builds(
    lambda ledger_id, ends: BadRange(LedgerId(ledger_id), EntryId(min(ends)), EntryId(max(ends))),
    st.integers(0, LEDGER_ID_MAX),
    st.tuples(st.integers(0, ENTRY_ID_MAX), st.integers(0, ENTRY_ID_MAX)),
)
positions = st.builds(
    lambda ledger_id, entry_id: ScrubPosition(ledger_id, EntryId(entry_id)),
    st.integers(0, LEDGER_ID_MAX + 1),
    st.integers(0, ENTRY_ID_MAX),
)
records = st.builds(
    ScrubRecord,
    times,
    times,
    times,
    times,
    st.none() | positions,
    times,
    st.lists(ranges, max_size=5).map(tuple),
)


@given(records)
def test_a_record_is_read_as_it_was_stored(record: ScrubRecord) -> None:
    assert SCRUB_CODEC.unpack("x", SCRUB_CODEC.pack("x", record)) == record


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    with contextlib.suppress(MetadataFormatError):
        assert isinstance(SCRUB_CODEC.unpack("x", value), ScrubRecord)


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (1, -1),
        (5, [LEDGER_ID_MAX + 2, 0]),
        (5, [-1, 0]),
        (5, [1, "7"]),
        (5, [1]),
        (7, [[-1, 2, 3]]),
        (7, [[1, 2]]),
        (7, [[1, 3, 2]]),
        (7, [[1, 2, 2]] * (BAD_RANGES_MAX + 1)),
    ],
)
def test_a_field_out_of_its_range_is_refused(index: int, field: object) -> None:
    fields = msgpack.unpackb(SCRUB_CODEC.pack("x", NEVER_SCRUBBED))
    fields[index] = field
    with pytest.raises(MetadataFormatError):
        SCRUB_CODEC.unpack("x", msgpack.packb(fields))


@pytest.mark.parametrize("ledger_id", [0, LEDGER_ID_MAX])
def test_the_first_and_the_last_ledger_may_be_damaged(ledger_id: int) -> None:
    bad = BadRange(LedgerId(ledger_id), EntryId(0), EntryId(0))
    position = ScrubPosition(ledger_id, EntryId(0))
    record = ScrubRecord(position=position, bad=(bad,) * BAD_RANGES_MAX)
    assert SCRUB_CODEC.unpack("x", SCRUB_CODEC.pack("x", record)) == record


def test_a_scrub_ends_behind_the_last_ledger() -> None:
    record = ScrubRecord(position=ScrubPosition(LEDGER_ID_MAX + 1, EntryId(0)))
    assert SCRUB_CODEC.unpack("x", SCRUB_CODEC.pack("x", record)) == record


def test_the_damage_of_a_record() -> None:
    bad = (
        BadRange(LedgerId(1), EntryId(0), EntryId(9)),
        BadRange(LedgerId(2), EntryId(5), EntryId(5)),
    )
    record = ScrubRecord(bad=bad)
    assert record.bad_entries == 11
    assert record.bad_of(LedgerId(2)) == bad[1:]


def test_the_format_is_the_documented_one() -> None:
    bad = BadRange(LedgerId(8), EntryId(9), EntryId(10))
    record = ScrubRecord(1, 2, 3, 4, ScrubPosition(5, EntryId(6)), 7, (bad,))
    assert msgpack.unpackb(SCRUB_CODEC.pack("x", record)) == [
        1,
        1,
        2,
        3,
        4,
        [5, 6],
        7,
        [[8, 9, 10]],
    ]

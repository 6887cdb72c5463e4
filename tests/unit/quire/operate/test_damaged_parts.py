"""Damaged entries of a ledger are repairable, or stay for a reason."""

from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.scrub import BadRange, ScrubRecord
from quire.operate.repair_explanation import Unrepaired, damaged_parts
from quire.repair.bad_entries import bad_entries
from tests.support.sample_ledgers import IN_SYNC, closed_ledger, open_ledger

A = BookieId("a")
LEDGERS = (
    open_ledger("abc"),
    open_ledger("abc", "bcd", "abd"),
    closed_ledger("abc"),
    closed_ledger("bcd", "abc"),
    open_ledger("abc", quorum=IN_SYNC),
    closed_ledger("abc", "bcd").with_lost([(3, 5), (8, 12)], 5, UpdateToken(bytes(16))),
)


def record(*ranges: tuple[int, int], ledger_id: int = 7) -> ScrubRecord:
    bad = (BadRange(LedgerId(ledger_id), EntryId(first), EntryId(last)) for first, last in ranges)
    return ScrubRecord(bad=tuple(bad))


@given(st.sampled_from(LEDGERS), st.integers(0, 200), st.integers(0, 200))
def test_each_damaged_entry_is_in_one_part(ledger: LedgerMetadata, first: int, count: int) -> None:
    reported = record((first, first + count))
    parts = damaged_parts(ledger, {A: reported})
    entries = [
        entry_id
        for each in parts
        for entry_id in range(each.entries.first_entry_id, each.entries.last_entry_id + 1)
    ]
    assert entries == list(range(first, first + count + 1))
    repairable = [each.entries for each in parts if each.why_not is None]
    assert repairable == bad_entries(ledger, A, reported.bad)


def test_entries_after_the_end_need_no_copy() -> None:
    ledger = closed_ledger("abc")
    end = ledger.last_entry_id
    assert end is not None
    found = damaged_parts(ledger, {A: record((end, end + 5))})
    assert [(each.entries.first_entry_id, each.why_not) for each in found] == [
        (end, None),
        (end + 1, Unrepaired.AFTER_THE_END),
    ]


def test_an_in_sync_ledger_is_repaired_once_it_is_closed() -> None:
    (found,) = damaged_parts(open_ledger("abc", quorum=IN_SYNC), {A: record((0, 3))})
    assert found.why_not is Unrepaired.OPEN


def test_other_ledgers_are_left_out() -> None:
    assert damaged_parts(closed_ledger("abc"), {A: record((0, 3), ledger_id=8)}) == []

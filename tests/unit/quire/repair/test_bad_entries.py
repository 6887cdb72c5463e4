"""Damaged entries that can be repaired where they are, of one ledger (rule 9.12)."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import EntryId, LedgerId, UpdateToken
from metadata.ledgers.entry_ranges import Range, merged, without
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.scrub import BadRange
from quire.repair.bad_entries import BadEntries, bad_entries, lacking, missing_entries
from tests.support.sample_ledgers import IN_SYNC, bookies, closed_ledger, open_ledger

A, B = bookies("ab")


def found(ledger: LedgerMetadata, *reported: tuple[int, int, int]) -> list[tuple[int, int]]:
    ranges = [BadRange(LedgerId(i), EntryId(first), EntryId(last)) for i, first, last in reported]
    bad = bad_entries(ledger, A, ranges)
    assert all(entries.bookie_id == A for entries in bad)
    return [(entries.first_entry_id, entries.last_entry_id) for entries in bad]


@pytest.mark.parametrize(
    ("ledger", "repaired"),
    [
        (closed_ledger("abc", ledger_id=7), [(3, 5)]),
        (closed_ledger("abc", "acd", ledger_id=7), [(3, 5), (12, 12)]),
        (closed_ledger("bcd", "acd", ledger_id=7), [(12, 12)]),
        (open_ledger("abc", "acd", ledger_id=7), [(3, 5)]),
        (open_ledger("abc", ledger_id=7), []),
        (open_ledger("abc", "acd", ledger_id=7, quorum=IN_SYNC), []),
    ],
)
def test_entries_of_closed_fragments_are_repaired_on_members(
    ledger: LedgerMetadata, repaired: list[tuple[int, int]]
) -> None:
    assert found(ledger, (7, 12, 12), (7, 3, 5), (8, 4, 4)) == repaired


def test_a_range_is_cut_to_its_fragments_and_to_the_end_of_the_ledger() -> None:
    ledger = closed_ledger("abc", "acd", ledger_id=7)
    assert ledger.last_entry_id is not None
    end = ledger.last_entry_id
    assert found(ledger, (7, 8, end + 5)) == [(8, 9), (10, end)]
    assert found(ledger, (7, end + 1, end + 5)) == []


def test_entries_whose_loss_was_accepted_need_no_copy() -> None:
    ledger = closed_ledger("abc", "acd", ledger_id=7)
    lost = ledger.with_lost([(4, 5), (9, 12)], 5, UpdateToken(bytes(15) + b"1"))
    assert found(lost, (7, 3, 10), (7, 12, 14)) == [(3, 3), (6, 8), (13, 14)]


def test_the_text_for_operators() -> None:
    assert BadEntries(A, EntryId(3), EntryId(3)).text == f"entry 3 on {A}"
    assert BadEntries(A, EntryId(3), EntryId(4)).text == f"entries 3 to 4 on {A}"


def test_missing_ranges_are_in_the_order_of_entries() -> None:
    assert missing_entries({B: ((4, 5), (9, 9)), A: ((6, 8),)}) == [
        BadEntries(B, EntryId(4), EntryId(5)),
        BadEntries(A, EntryId(6), EntryId(8)),
        BadEntries(B, EntryId(9), EntryId(9)),
    ]


RANGES = st.lists(st.integers(0, 30), unique=True).map(lambda ids: merged((n, n) for n in ids))


async def pages(ranges: list[Range]) -> AsyncIterator[Range]:
    for range_ in ranges:
        yield range_


@given(wanted=RANGES, held=RANGES)
async def test_what_is_wanted_and_not_held_is_lacking(
    wanted: list[Range], held: list[Range]
) -> None:
    found = [each async for each in lacking(wanted, pages(held))]
    assert found == without(wanted, held)

"""Each bookie in each fragment."""

from dataclasses import replace

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, QuorumSpec
from quire.console.safety import (
    FRAGMENTS_SHOWN,
    CellState,
    FragmentMap,
    Held,
    map_of,
    parts,
    window_of,
)
from tests.support.sample_ledgers import bookies, closed_ledger, open_ledger

A, B, C, D = bookies("abcd")
ALL = Held([(0, 99)], ENTRY_ID_MAX)


def drawn(ledger: LedgerMetadata, held: dict[BookieId, Held], confirmed: int) -> FragmentMap:
    found = parts(ledger, held, 0, confirmed, confirmed)
    return map_of(ledger, found, held, window_of(ledger, None), confirmed)


def test_the_states_of_cells() -> None:
    held = {A: Held([(0, 3)], ENTRY_ID_MAX), B: ALL, C: Held(is_up=False), D: Held(problem="slow")}
    found = drawn(closed_ledger("abc", "bcd"), held, 19)
    assert found.bookies == (A, B, C, D)
    states = {key: cell.text for key, cell in found.cells.items()}
    assert states == {
        (A, 0): "missing 6 of 10",
        (B, 0): "verified, 10 assigned",
        (C, 0): "bookie down, 10 assigned",
        (B, 1): "verified, 10 assigned",
        (C, 1): "bookie down, 10 assigned",
        (D, 1): "not checked, 10 assigned",
    }
    assert (found.columns[1].text, found.columns[1].count) == ("10 to 19", 10)


def test_stripes_count_what_the_write_sets_assign() -> None:
    striped = QuorumSpec(3, 2, 2, stripe_entries=4)
    held = {A: ALL, B: ALL, C: Held([(4, 7)], ENTRY_ID_MAX)}
    found = drawn(closed_ledger("abc", quorum=striped), held, 9)
    # Entries 0-3 are on a and b, 4-7 on b and c, 8-9 on c and a.
    assert {key[0]: cell.text for key, cell in found.cells.items()} == {
        A: "verified, 6 assigned",
        B: "verified, 8 assigned",
        C: "missing 2 of 6",
    }


def test_an_open_fragment_without_entries_is_assigned_only() -> None:
    found = drawn(open_ledger("abc", "bcd"), {B: ALL, C: ALL, D: ALL}, 9)
    assert found.cells[D, 1].state is CellState.ASSIGNED
    assert (found.columns[1].last, found.columns[1].text) == (None, "from 10")


def test_a_bookie_to_which_a_repair_copies() -> None:
    ledger = closed_ledger("abc")
    ledger = replace(ledger, fragments=(Fragment(EntryId(0), (A, B, C), (D,)),))
    assert drawn(ledger, {D: ALL}, 9).cells[D, 0].state is CellState.INCOMING


def test_the_newest_fragments_are_shown_first() -> None:
    ledger = closed_ledger(*["abc", "bcd"] * FRAGMENTS_SHOWN)
    count = len(ledger.fragments)
    assert window_of(ledger, None) == range(count - FRAGMENTS_SHOWN, count)
    assert window_of(ledger, 3) == range(3, 3 + FRAGMENTS_SHOWN)
    assert window_of(ledger, 10**18) == range(count - 1, count)

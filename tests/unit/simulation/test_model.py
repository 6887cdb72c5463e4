"""Tests of the facts of a ledger: since when a bookie may have released it."""

from dataclasses import replace

from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from tests.simulation.model import LedgerModel
from tests.support.metadata.samples import A, B, C, D, open_ledger

MOVED_S = 20.0
BACK_S = 30.0


def _closed(*fragments: Fragment) -> LedgerMetadata:
    ledger = open_ledger(7, *fragments)
    return replace(ledger, state=LedgerState.CLOSED, last_entry_id=EntryId(9), length=0)


def test_what_was_stored_before_a_bookie_came_back_may_be_released() -> None:
    ledger = LedgerModel(7)
    ledger.set_metadata(_closed(Fragment(EntryId(0), (A, B, C))), 10.0)
    assert not ledger.may_be_released(A, 5.0)
    ledger.set_metadata(_closed(Fragment(EntryId(0), (D, B, C))), MOVED_S)
    ledger.set_metadata(_closed(Fragment(EntryId(0), (D, B, C), (A,))), BACK_S)
    ledger.set_metadata(_closed(Fragment(EntryId(0), (D, A, C))), 31.0)
    assert ledger.may_be_released(A, 5.0)
    assert ledger.may_be_released(A, BACK_S - 1.0)
    assert not ledger.may_be_released(A, BACK_S)
    assert ledger.may_be_released(B, BACK_S)
    assert not ledger.may_be_released(C, 5.0)


def test_a_bookie_that_another_fragment_names_has_released_nothing() -> None:
    ledger = LedgerModel(7)
    last = Fragment(EntryId(5), (A, B, C))
    ledger.set_metadata(_closed(Fragment(EntryId(0), (A, B, C)), last), 10.0)
    ledger.set_metadata(_closed(Fragment(EntryId(0), (D, B, C)), last), MOVED_S)
    assert not ledger.may_be_released(A, 5.0)
    assert ledger.may_be_released("bookie-of-no-fragment", 5.0)


def test_nothing_is_released_before_the_close() -> None:
    ledger = LedgerModel(7)
    ledger.set_metadata(open_ledger(7, Fragment(EntryId(0), (D, B, C))), 10.0)
    assert not ledger.may_be_released(A, 5.0)
    ledger.set_metadata(None, MOVED_S)
    assert not ledger.may_be_released(A, 5.0)

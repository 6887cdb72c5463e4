"""What it means that a bookie holds a ledger that does not name it."""

from quire.cli.metadata import DELETED, MOVED, NOT_CLOSED, UNKNOWN, meaning_of
from quire.operate.held_ledgers import Holding
from tests.support.sample_ledgers import closed_ledger, open_ledger


def test_entries_of_ranges() -> None:
    assert Holding.of([]) is None
    assert Holding.of([(0, 9), (20, 21)]) == Holding(12, 21)


def test_each_difference_has_a_meaning() -> None:
    assert meaning_of(None, is_deleted=False) is UNKNOWN
    assert meaning_of(None, is_deleted=True) is DELETED
    assert meaning_of(closed_ledger("abc"), is_deleted=False) is MOVED
    assert meaning_of(open_ledger("abc"), is_deleted=False) is NOT_CLOSED

"""Each failure of a recovery becomes the error that says what to do (rules 7.2-7.5)."""

from typing import Any, cast

import pytest

from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerNotFoundError,
    MetadataConflictError,
    NotEnoughBookiesError,
    RecoveryUndecidedError,
    UnauthorizedError,
)
from ledger_client.protocol import recovery_events as e
from ledger_client.recovery.recoverer import recovery_error
from metadata.ids import BookieId, EntryId, LedgerId

LEDGER = LedgerId(7)
A = BookieId("bookie-a")


@pytest.mark.parametrize(
    ("entry_id", "where"),
    [(None, "the ledger needs 2"), (EntryId(0), "entry 0 needs 2"), (EntryId(5), "entry 5 needs")],
)
def test_an_undecided_end_names_what_is_missing(entry_id: EntryId | None, where: str) -> None:
    failure = e.Undecided(entry_id, "2 of a and b", {A: "refused"}, is_last_fragment_empty=True)
    error = recovery_error(LEDGER, failure)
    assert isinstance(error, RecoveryUndecidedError)
    assert where in str(error)
    assert "bookie-a: refused" in str(error)
    assert (error.entry_id, error.ledger_id) == (entry_id, LEDGER)
    assert (error.missing, error.is_last_fragment_empty) == ({"bookie-a": "refused"}, True)


def test_too_few_replacements_are_counted() -> None:
    error = recovery_error(LEDGER, e.NoReplacement(2, 1, {A: "full"}, " on other hosts"))
    assert isinstance(error, NotEnoughBookiesError)
    assert (error.needed, error.seen, error.excluded) == (2, 1, {"bookie-a": "full"})
    assert error.outcome == "unknown"
    assert "2 more bookies are needed and 1 can be used (bookie-a: full) on" in str(error)


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (e.PasswordRefused(A), UnauthorizedError, "bookie-a refused the password"),
        (e.OtherBytesStored(A, EntryId(4)), EntryConflictError, "from entry 4 on, bookie bookie-a"),
        (e.FragmentsChanged(), MetadataConflictError, "changed during recovery"),
        (e.Deleted(), LedgerNotFoundError, "does not exist"),
    ],
)
def test_the_other_failures_have_an_error_each(
    failure: e.RecoveryFailure, kind: type[LedgerError], text: str
) -> None:
    error = recovery_error(LEDGER, failure)
    assert type(error) is kind
    assert text in str(error)
    assert error.ledger_id == LEDGER


def test_a_failure_without_an_error_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        recovery_error(LEDGER, cast("Any", "unheard of"))

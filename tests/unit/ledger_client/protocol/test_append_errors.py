"""Errors that end a writer, and refusals that are counted (rules 4.7, 5.5, 11.4)."""

import pytest

from bookie.wire.messages import Status
from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerFencedError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    NotEnoughInSyncReplicasError,
    TooManyFragmentsError,
    UnauthorizedError,
)
from ledger_client.protocol import append_events as e
from ledger_client.protocol.append_events import MembersChanged, ReplacementsMissing
from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import Fragment
from tests.support.metadata.samples import A, B, C, D, open_ledger

LEDGER = open_ledger()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.DELETED, LedgerNotFoundError),
        (Status.UNAUTHORIZED, UnauthorizedError),
        (Status.CONFLICT, EntryConflictError),
        (Status.FENCED, None),
        (Status.BAD_REQUEST, None),
        (Status.READ_ONLY, None),
    ],
)
def test_some_refusals_end_the_writer(status: Status, kind: type[LedgerError] | None) -> None:
    error = e.final_refusal(LEDGER, A, EntryId(5), status)
    if kind is None:
        assert error is None
        return
    assert type(error) is kind
    assert error.ledger_id == LEDGER.ledger_id
    if isinstance(error, EntryConflictError):
        assert error.entry_id == 5
    else:
        assert error.outcome == "unknown"


def test_each_end_has_its_error() -> None:
    missing = ReplacementsMissing(2, 3, {C: "read-only"})
    found: list[tuple[LedgerError, type[LedgerError], str]] = [
        (e.fenced(LEDGER), LedgerFencedError, "another client fenced it"),
        (e.replaced(LEDGER), LedgerNotFoundError, "not those that this writer stored"),
        (e.fenced_by_many(LEDGER, [A, B]), LedgerError, "2 bookies fence it"),
        (e.refused_by_many(LEDGER, EntryId(5)), LedgerError, "batch at entry 5"),
        (e.too_many_fragments(LEDGER), TooManyFragmentsError, "fragments, the maximum"),
        (
            e.no_replacement(LEDGER, [A, B], missing),
            NotEnoughBookiesError,
            "2 more needed",
        ),
        (
            e.not_enough_in_sync(LEDGER, (A,)),
            NotEnoughInSyncReplicasError,
            "1 members must be",
        ),
    ]
    for error, kind, text in found:
        assert type(error) is kind
        assert error.ledger_id == LEDGER.ledger_id
        assert text in str(error)


def test_a_shortage_says_what_was_needed_and_seen() -> None:
    error = e.no_replacement(LEDGER, [A], ReplacementsMissing(2, 3, {C: "read-only"}))
    assert (error.needed, error.seen, error.excluded) == (2, 3, {str(C): "read-only"})
    assert str(C) in str(error)


def test_a_batch_that_two_bookies_refuse_ends_the_writer() -> None:
    refused = e.RefusedBatches()
    assert not refused.count(EntryId(0), A)
    assert not refused.count(EntryId(0), A), "the same bookie again"
    assert not refused.count(EntryId(5), B), "another batch"
    assert not refused.count(EntryId(0), A), "counted from the beginning"
    assert refused.count(EntryId(0), B)


def test_a_change_names_the_bookies_that_left_and_joined() -> None:
    change = MembersChanged(Fragment(EntryId(5), (A, D, C)), (A, B, C))
    assert (change.replaced, change.joined) == ((B,), (D,))
    same = MembersChanged(Fragment(EntryId(5), (A, B)), (B, A))
    assert (same.replaced, same.joined) == ((), ())

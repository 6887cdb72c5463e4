"""Pieces of a copy, and what the target's answers mean (rules 4.2, 4.3, 9.1)."""

from dataclasses import replace

import pytest

from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from ledger_client.protocol.copy import (
    CopyPiece,
    copy_error,
    length_in_batch,
    refusal_error,
)
from ledger_client.reading.verified_entries import VerifiedEntries
from metadata.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec
from tests.support.bookie.batches import make_batch, payload_of

LEDGER = LedgerId(7)
KEYS = LedgerKeys(LEDGER, 7, None, b"")
STRIPES_OF_FOUR = QuorumSpec(3, 3, 2, 4)
X = BookieId("x")


def payloads(first: int, last: int) -> list[bytes]:
    """Return entries of different sizes."""
    return [payload_of(LEDGER, number, 10 + number) for number in range(first, last + 1)]


def length(first: int, last: int) -> int:
    return sum(map(len, payloads(first, last)))


def batch(first: int, last: int) -> BatchView:
    return make_batch(LEDGER, first, payloads(first, last), length_before=length(0, first - 1))


def answer(
    *batches: BatchView, following: int, is_damaged: bool = False, reason: str = ""
) -> VerifiedEntries:
    return VerifiedEntries(
        batches, EntryId(following), Status.OK, reason, NO_ENTRY, is_damaged=is_damaged
    )


def piece(first: int, last: int, bytes_max: int = 10_000) -> CopyPiece:
    """Return a piece from an answer whose batch is longer at both ends."""
    before, after = 1000, last + 1
    found = answer(batch(first - 1, first + 1), batch(first + 2, last + 2), following=after)
    return CopyPiece.of(found, EntryId(first), before, STRIPES_OF_FOUR, bytes_max, KEYS)


# -- what is sent on -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bytes_max", "cut"),
    [
        (10_000, [(3, 1), (4, 4), (8, 2)]),
        (len(b"".join(payloads(4, 5))), [(3, 1), (4, 2), (6, 1), (7, 1), (8, 1), (9, 1)]),
        (1, [(number, 1) for number in range(3, 10)]),
    ],
)
def test_entries_are_sent_on_in_batches_of_their_own_stripes(
    bytes_max: int, cut: list[tuple[int, int]]
) -> None:
    made = piece(3, 9, bytes_max)
    assert made.payloads_from(EntryId(3)) == payloads(3, 9)
    assert (made.first_entry_id, made.next_entry_id) == (3, 10)
    assert made.payload_bytes == length(3, 9)
    assert made.batch_bytes == sum(len(data) for _, data in made.batches)
    views = [BatchView(data) for _, data in made.batches]
    assert [(view.header.first_entry_id, view.header.count) for view in views] == cut
    assert [first for first, _ in made.batches] == [first for first, _ in cut]
    for view in views:
        header = view.header
        view.verify_crc()
        view.verify_digests(KEYS.seed)
        first, last = header.first_entry_id, header.last_entry_id
        assert header.lac == first - 1, "all entries before it are confirmed"
        assert header.length_before == 1000 + length(3, first - 1)
        assert [bytes(payload_view) for payload_view in view.payload_views()] == payloads(
            first, last
        )


def test_batches_whose_mac_cannot_be_made_again_are_sent_on_unchanged() -> None:
    keys = replace(KEYS, lacks_mac_key=True)
    found = [make_batch(LEDGER, a, payloads(a, b), mac_key=b"m" * 32) for a, b in ((2, 5), (6, 11))]
    made = CopyPiece.of(answer(*found, following=10), EntryId(3), 0, STRIPES_OF_FOUR, 1, keys)
    assert made.payloads_from(EntryId(3)) == payloads(3, 9)
    assert (made.first_entry_id, made.next_entry_id) == (3, 10)
    assert [first for first, _ in made.batches] == [2, 6]
    assert [bytes(data) for _, data in made.batches] == [bytes(view.data) for view in found]
    assert made.batch_bytes == sum(len(view.data) for view in found)


def test_only_a_complete_batch_says_how_long_the_ledger_is() -> None:
    complete = batch(5, 8)
    found = [length_in_batch(complete, EntryId(number)) for number in range(5, 9)]
    assert found == [length(0, number - 1) for number in range(5, 9)]
    part = BatchView(complete.cut(EntryId(6), EntryId(7)))
    assert length_in_batch(part, EntryId(6)) is None


# -- what the target returns -----------------------------------------------------------------------


def error_of(good: VerifiedEntries, first: int = 3) -> LedgerError | None:
    found = copy_error(X, piece(3, 9), EntryId(first), good, KEYS)
    assert found is None or found.entry_id == first
    return found


def test_the_entries_that_were_sent_are_a_correct_answer() -> None:
    assert error_of(answer(batch(3, 9), following=10)) is None
    assert error_of(answer(batch(3, 5), following=6)) is None, "up to the next entry"
    assert error_of(answer(batch(6, 7), batch(8, 9), following=10), 6) is None
    assert error_of(answer(batch(2, 12), following=10), 5) is None, "complete batches contain more"


def test_a_target_that_returns_nothing_lacks_the_entry() -> None:
    error = error_of(answer(following=3, reason="answered NO_SUCH_ENTRY"))
    assert isinstance(error, NotEnoughBookiesError)
    assert "answered NO_SUCH_ENTRY" in str(error)


@pytest.mark.parametrize(
    ("good", "why"),
    [
        (answer(following=3, is_damaged=True, reason="bad digest"), "bad digest"),
        (
            answer(make_batch(LEDGER, 3, [b"other"]), following=4),
            "other bytes than its source stores",
        ),
        (answer(batch(3, 6), make_batch(LEDGER, 7, [b"other"]), following=8), "other bytes"),
        (answer(make_batch(8, 3, payloads(3, 9)), following=10), "digest"),
    ],
    ids=["damaged", "other entry", "other later entry", "digests of another ledger"],
)
def test_other_bytes_or_digests_are_damage(good: VerifiedEntries, why: str) -> None:
    error = error_of(good)
    assert isinstance(error, NotEnoughBookiesError)
    assert why in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.UNAUTHORIZED, UnauthorizedError),
        (Status.DELETED, LedgerNotFoundError),
        (Status.CONFLICT, EntryConflictError),
        (Status.READ_ONLY, NotEnoughBookiesError),
        (None, NotEnoughBookiesError),
    ],
)
def test_a_refusal_is_told_apart_by_what_can_be_done(
    status: Status | None, kind: type[LedgerError]
) -> None:
    error = refusal_error(LEDGER, X, EntryId(5), status, "it is away")
    assert type(error) is kind
    assert error.ledger_id == LEDGER
    if isinstance(error, EntryConflictError):
        assert (error.entry_id, error.outcome) == (5, "not_written")
    if isinstance(error, NotEnoughBookiesError):
        why = "it is away" if status is None else "answered READ_ONLY"
        assert (error.needed, error.seen, error.excluded) == (1, 0, {"x": why})
        assert error.entry_id == 5

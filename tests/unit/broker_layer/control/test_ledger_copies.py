"""What a closed ledger lacks, by its metadata and the bookies whose copies do not count."""

from dataclasses import replace

import pytest

from broker_layer.control.ledger_health import TOO_FEW, LedgerShortage, ledger_copies, shortage_of
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from metadata.ledgers.lost_entries import LostRange
from tests.support.sample_ledgers import ledger_of

A, B, C, D = (BookieId(f"bookie-{letter}") for letter in "abcd")
LEDGER = ledger_of((0, (A, B, C)), (60, (A, B, D))).with_closed(
    EntryId(99), 1000, UpdateToken(bytes(16))
)
IN_SYNC = replace(LEDGER, quorum=QuorumSpec(3, 3, 3, mode=QuorumMode.IN_SYNC))


def shortage(ledger: LedgerMetadata, *away: BookieId) -> LedgerShortage | None:
    copies = ledger_copies(ledger)
    assert copies is not None
    return shortage_of(ledger.ledger_id, copies, lambda each: "is away" if each in away else "")


@pytest.mark.parametrize(
    ("away", "entries", "size", "why"),
    [
        ([C], 60, 600, "bookie-c is away"),
        ([D], 40, 400, "bookie-d is away"),
        ([A], 100, 1000, "bookie-a is away"),
        ([C, D], 100, 1000, "bookie-c is away; bookie-d is away"),
    ],
)
def test_entries_of_fragments_with_a_bookie_that_is_away_are_short(
    away: list[BookieId], entries: int, size: int, why: str
) -> None:
    assert shortage(LEDGER, *away) == LedgerShortage(
        LEDGER.ledger_id, why, tuple(away), entries, size
    )


def test_a_ledger_with_all_its_copies_lacks_nothing() -> None:
    assert shortage(LEDGER) is None
    assert shortage(LEDGER, BookieId("bookie-e")) is None


def test_a_fragment_without_entries_lacks_nothing() -> None:
    fragments = (LEDGER.fragments[0], Fragment(EntryId(100), (A, B, D)))
    assert shortage(replace(LEDGER, fragments=fragments), D) is None
    empty = replace(LEDGER, fragments=LEDGER.fragments[:1], last_entry_id=EntryId(-1), length=0)
    assert shortage(empty, A) is None


def test_entries_whose_loss_was_accepted_need_no_copies() -> None:
    lost = (LostRange(EntryId(0), EntryId(49), 1),)
    found = shortage(replace(LEDGER, lost=lost), C)
    assert found is not None
    assert found.entry_count == 10
    everything = (LostRange(EntryId(0), EntryId(99), 1),)
    assert shortage(replace(LEDGER, lost=everything), A, B, C, D) is None


def test_a_closed_in_sync_ledger_with_too_few_members_is_short() -> None:
    fragments = (Fragment(EntryId(0), (A, B)),)
    found = shortage(replace(IN_SYNC, fragments=fragments))
    assert found == LedgerShortage(LEDGER.ledger_id, TOO_FEW, (), 100, 1000)


def test_the_copies_of_a_ledger_that_is_not_closed_are_not_known() -> None:
    is_open = replace(LEDGER, state=LedgerState.OPEN, last_entry_id=None, length=None)
    assert ledger_copies(is_open) is None

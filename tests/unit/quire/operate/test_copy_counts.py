"""Copies that remain, by the write sets that hold entries and the bookies that are up."""

from dataclasses import replace

import pytest

from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from quire.operate.copy_counts import (
    Copies,
    Loss,
    bytes_on,
    fewest_copies,
    loss_of,
    names_bookie,
    write_sets,
)
from tests.support.sample_ledgers import ledger_of

A, B, C, D, E = (BookieId(name) for name in "abcde")
LEDGER = ledger_of((0, "abc"), (10, "abd"))
STRIPED = replace(
    LEDGER,
    quorum=QuorumSpec(5, 2, 2, stripe_entries=4),
    fragments=(Fragment(EntryId(0), (A, B, C, D, E)),),
)


def closed(ledger: LedgerMetadata, last: int) -> LedgerMetadata:
    return replace(ledger, state=LedgerState.CLOSED, last_entry_id=EntryId(last), length=last + 1)


@pytest.mark.parametrize(
    ("up", "certain", "possible", "loss"),
    [
        ("abcd", 2, 3, None),
        ("abd", 1, 2, None),
        ("ad", 0, 1, Loss.MAY_BE_UNREADABLE),
        ("c", 0, 0, Loss.UNREADABLE),
    ],
)
def test_copies_of_a_quorum_ledger(up: str, certain: int, possible: int, loss: Loss | None) -> None:
    copies = fewest_copies(LEDGER, [BookieId(name) for name in up])
    assert copies is not None
    assert (copies.certain, copies.possible, loss_of(copies)) == (certain, possible, loss)


def test_a_copy_on_a_bookie_in_limbo_is_possible_and_not_certain() -> None:
    """Rule 9.13."""
    copies = fewest_copies(LEDGER, [A, B, C, D], [A])
    assert copies == Copies(EntryId(0), 1, 3, 2)
    assert fewest_copies(LEDGER, [B, C, D], [A]) == Copies(EntryId(0), 1, 2, 2)
    lone = fewest_copies(LEDGER, [A], [A])
    assert lone == Copies(EntryId(0), 0, 1, 2)
    assert loss_of(lone) is Loss.MAY_BE_UNREADABLE


@pytest.mark.parametrize(
    ("quorum", "up", "loss"),
    [
        (QuorumSpec(3, 3, 3), (A, B), Loss.SHORT_OF_ACK_QUORUM),
        (QuorumSpec(3, 3, 3), (A,), Loss.SHORT_OF_ACK_QUORUM),
        (QuorumSpec(3, 3, 3), (), Loss.UNREADABLE),
        (QuorumSpec(1, 1, 1), (A,), Loss.ONE_COPY),
    ],
)
def test_what_a_ledger_lacks(quorum: QuorumSpec, up: tuple[BookieId, ...], loss: Loss) -> None:
    members = (A, B, C)[: quorum.ensemble_size]
    ledger = replace(LEDGER, quorum=quorum, fragments=(Fragment(EntryId(0), members),))
    copies = fewest_copies(ledger, up)
    assert copies is not None
    assert loss_of(copies) is loss


def test_an_in_sync_fragment_has_a_copy_on_each_of_its_members() -> None:
    ledger = replace(
        LEDGER,
        quorum=QuorumSpec(3, 3, 3, mode=QuorumMode.IN_SYNC),
        fragments=(Fragment(EntryId(0), (A, B, C)), Fragment(EntryId(5), (A, B))),
    )
    assert fewest_copies(ledger, (A, B, C)) == Copies(EntryId(5), 2, 2, 2)
    assert fewest_copies(ledger, (A,)) == Copies(EntryId(0), 1, 1, 3)


def test_all_write_sets_of_an_open_fragment_count() -> None:
    found = [each.bookies for each in write_sets(STRIPED)]
    assert found == [(A, B), (B, C), (C, D), (D, E), (E, A)]


@pytest.mark.parametrize(("last", "count"), [(0, 1), (3, 1), (4, 2), (19, 5), (400, 5)])
def test_only_write_sets_with_entries_of_a_closed_ledger_count(last: int, count: int) -> None:
    found = [each.bookies for each in write_sets(closed(STRIPED, last))]
    assert found == [each.bookies for each in write_sets(STRIPED)][:count]


def test_a_fragment_begins_in_the_middle_of_a_stripe() -> None:
    first, second = Fragment(EntryId(0), (A, B, C, D, E)), Fragment(EntryId(6), (E, D, C, B, A))
    found = list(write_sets(closed(replace(STRIPED, fragments=(first, second)), 8)))
    assert [(each.first_entry_id, each.bookies) for each in found] == [
        (0, (A, B)),
        (0, (B, C)),
        (6, (D, C)),
        (6, (C, B)),
    ]


def test_an_empty_ledger_or_fragment_has_no_copies_to_lose() -> None:
    empty = replace(LEDGER, fragments=LEDGER.fragments[:1])
    assert fewest_copies(closed(empty, -1), ()) is None
    in_first = closed(LEDGER, 9)
    assert [each.first_entry_id for each in write_sets(in_first)] == [0]
    assert fewest_copies(in_first, (A, B, C)) == Copies(EntryId(0), 2, 3, 2)


def test_a_ledger_names_its_members_incoming_ones_and_those_of_given_up_fragments() -> None:
    first, second = LEDGER.fragments
    ledger = replace(
        closed(LEDGER, 12),
        fragments=(replace(first, incoming=(D,)), replace(second, ensemble=(A, B, C))),
        given_up=(Fragment(EntryId(13), (E,)),),
    )
    assert [each for each in (A, B, C, D, E) if names_bookie(ledger, each)] == [A, B, C, D, E]
    assert not names_bookie(ledger, BookieId("f"))


def test_bytes_on_a_bookie_follow_its_share_of_the_entries() -> None:
    ledger = replace(closed(LEDGER, 19), length=2_000)  # 10 entries in each fragment
    assert [bytes_on(ledger, each) for each in (A, C, D, E)] == [2_000, 1_000, 1_000, 0]
    striped = replace(closed(STRIPED, 19), length=1_000)
    assert bytes_on(striped, A) == 400
    assert bytes_on(LEDGER, A) == 0, "the length of an open ledger is unknown"
    empty = replace(closed(STRIPED, -1), length=0)
    assert bytes_on(empty, A) == 0
    ends_early = replace(closed(LEDGER, 4), length=500)  # before its last fragment
    assert [bytes_on(ends_early, each) for each in (C, D)] == [500, 0]

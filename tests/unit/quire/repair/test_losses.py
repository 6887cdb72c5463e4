"""Which entries are lost, from the answers of the bookies; and the end of an undecided recovery."""

import random
from collections.abc import Mapping

import pytest

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId, UpdateToken
from metadata.ledgers.copies import ranges_by_bookie
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from quire.repair.losses import (
    BookieAnswers,
    entries_to_find,
    judge_losses,
)
from quire.repair.undecided_end import AcceptedEnd, accepted_end
from tests.support.sample_ledgers import QUORUM, bookies, closed_ledger, open_ledger

TOKEN = UpdateToken(bytes(16))


def answers_of(ledger: LedgerMetadata, **known: Mapping[str, object]) -> list[BookieAnswers]:
    """Return the answers of all bookies; those without any did not answer."""
    assert ledger.last_entry_id is not None
    found = []
    for bookie_id, expected in ranges_by_bookie(ledger, ledger.last_entry_id).items():
        each = BookieAnswers(bookie_id, expected)
        for name, value in known.get(bookie_id, {}).items():
            setattr(each, name, value)
        found.append(each)
    return found


GONE = {"gone": "is lost"}
LEDGER = closed_ledger("abc")


def test_entries_of_which_every_bookie_is_lost_are_lost() -> None:
    report = judge_losses(LEDGER, answers_of(LEDGER, a=GONE, b=GONE, c=GONE))
    assert (report.lost, report.unknown) == (((0, 9),), ())


def test_one_copy_is_enough() -> None:
    some = {"readable": [(0, 3), (6, 9)], "missing": [(4, 5)]}
    report = judge_losses(LEDGER, answers_of(LEDGER, a=GONE, b=GONE, c=some))
    assert report.lost == ((4, 5),)
    others = {"readable": [(5, 5)]}
    report = judge_losses(LEDGER, answers_of(LEDGER, a=GONE, b=others, c=some))
    assert (report.lost, report.unknown) == ((), ((4, 4),)), "b said nothing about entry 4"


def test_a_bookie_that_does_not_answer_is_unknown_unless_it_is_given_up() -> None:
    silent = {"failure": "it did not answer in time"}
    answers = answers_of(LEDGER, a=GONE, b=silent, c={"damaged": [(0, 9)]})
    report = judge_losses(LEDGER, answers)
    assert (report.lost, report.unknown) == ((), ((0, 9),))
    assert report.unsure_bookies == {"b": "it did not answer in time"}
    assert judge_losses(LEDGER, answers, bookies("ac")).unknown == ((0, 9),)
    report = judge_losses(LEDGER, answers, bookies("b"))
    assert (report.lost, report.unknown) == (((0, 9),), ())
    assert [report.standing_of(answer) for answer in report.answers] == [
        "is lost",
        "it did not answer in time",
        "returns them damaged",
    ]


def test_entries_that_were_accepted_before_are_left_out() -> None:
    ledger = LEDGER.with_lost([(2, 4)], 5, TOKEN)
    assert entries_to_find(ledger) == [(0, 1), (5, 9)]
    report = judge_losses(ledger, answers_of(ledger, a=GONE, b=GONE, c=GONE))
    assert report.lost == ((0, 1), (5, 9))
    everything = ledger.with_lost(report.lost, 6, TOKEN)
    assert judge_losses(everything, answers_of(everything)).lost == ()


def test_only_the_write_set_of_an_entry_decides() -> None:
    ledger = closed_ledger("abcd", quorum=QuorumSpec(4, 2, 2, stripe_entries=2))
    c, d = {"readable": [(2, 3), (4, 5)]}, {"readable": [(4, 5), (6, 7)]}
    report = judge_losses(ledger, answers_of(ledger, a=GONE, b=GONE, c=c, d=d))
    assert report.lost == ((0, 1), (8, 9))


@pytest.mark.parametrize("seed", range(40))
def test_an_entry_is_lost_exactly_if_no_bookie_may_return_it(seed: int) -> None:
    rng = random.Random(seed)
    ledger = closed_ledger("abcde", "bcdea", quorum=QuorumSpec(5, 3, 2, stripe_entries=3))
    answers = answers_of(ledger)
    may_return: set[int] = set()
    returns: set[int] = set()
    for answer in answers:
        if rng.random() < 0.4:
            answer.gone = "is lost"
            continue
        for first, last in answer.expected:
            for entry_id in range(first, last + 1):
                kind = rng.choice(("readable", "missing", "damaged", "missing", "unknown"))
                if kind in ("readable", "unknown"):
                    may_return.add(entry_id)
                if kind == "readable":
                    returns.add(entry_id)
                if kind != "unknown":
                    getattr(answer, kind).append((entry_id, entry_id))
    report = judge_losses(ledger, answers)
    lost = {e for first, last in report.lost for e in range(first, last + 1)}
    unknown = {e for first, last in report.unknown for e in range(first, last + 1)}
    assert lost == set(range(20)) - may_return
    assert unknown == may_return - returns


# -- the end of a recovery that cannot be decided --------------------------------------------------


def end_of(lac: int, *, quorum: QuorumSpec = QUORUM, **held: list[Range]) -> AcceptedEnd:
    """Return the end if these members answer for all entries up to 40, and the others are lost."""
    fragment = open_ledger("abcd"[: quorum.ensemble_size], quorum=quorum).last_fragment
    answers = []
    for name, readable in held.items():
        each = BookieAnswers(BookieId(name), [(0, 40)], readable=readable)
        each.missing = each.unknown
        answers.append(each)
    return accepted_end(quorum, fragment, EntryId(lac), answers)


def test_the_end_is_the_last_entry_that_exists() -> None:
    assert end_of(4, a=[(0, 7)]) == AcceptedEnd(EntryId(7), is_proved=False)
    assert end_of(4, a=[(0, 4)]) == AcceptedEnd(EntryId(4), is_proved=False)
    assert end_of(-1, a=[]) == AcceptedEnd(EntryId(-1), is_proved=False)


def test_an_entry_that_can_be_read_is_not_cut_off_by_a_gap() -> None:
    assert end_of(4, a=[(0, 5), (8, 9)]).last_entry_id == 9
    assert end_of(6, a=[(0, 3)]).last_entry_id == 6, "the LAC proves that these entries existed"


def test_enough_negatives_end_the_ledger() -> None:
    assert end_of(4, a=[(0, 7)], b=[(0, 5)]) == AcceptedEnd(EntryId(7), is_proved=True)
    found = end_of(4, a=[(0, 5), (7, 7)], b=[(0, 5)])
    assert found == AcceptedEnd(EntryId(5), is_proved=True), "entry 6 was never acknowledged"


def test_what_may_follow_the_end_is_lost() -> None:
    assert end_of(4, a=[(0, 7)]).lost_after == [(8, ENTRY_ID_MAX)]
    assert end_of(4, a=[(0, 7)], b=[(0, 5)]).lost_after == []


def test_the_write_set_of_each_stripe_decides() -> None:
    quorum = QuorumSpec(4, 2, 2, stripe_entries=2)
    # c and d are lost; stripe 0 is on a, b; 1 on b, c; 2 on c, d; 3 on d, a.
    assert end_of(0, quorum=quorum, a=[(0, 1)], b=[(0, 2)]) == AcceptedEnd(
        EntryId(2), is_proved=True
    )
    found = end_of(0, quorum=quorum, a=[(0, 1), (6, 6)], b=[(0, 3)])
    assert found == AcceptedEnd(EntryId(6), is_proved=True), "entries 4 and 5 may have existed"


def test_a_bookie_without_a_certain_answer_is_no_negative() -> None:
    fragment = open_ledger("abc").last_fragment
    answers = [
        BookieAnswers(BookieId("a"), [(0, 40)], readable=[(0, 4)], missing=[(5, 40)]),
        BookieAnswers(BookieId("b"), [(0, 40)], readable=[(0, 4)]),
    ]
    found = accepted_end(QUORUM, fragment, EntryId(3), answers)
    assert found == AcceptedEnd(EntryId(4), is_proved=False)

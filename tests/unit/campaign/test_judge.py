"""Tests of a campaign's judge on correct histories and on histories with planted errors."""

from dataclasses import replace

import pytest

from tests.campaign.history import AckedRange, LedgerHistory
from tests.campaign.judge import Copies, Evidence, covered_less_than, judge

LEDGER = 7
HISTORY = LedgerHistory(
    LEDGER,
    acked=[AckedRange(0, 9, "a"), AckedRange(10, 19, "b")],
    lac=19,
    ended="closed",
    end_last=19,
)
WHOLE = ((0, 19),)
EVIDENCE = Evidence(
    state="closed",
    last_entry_id=19,
    length=200,
    fragment_firsts=(0, 10),
    ack_quorum=2,
    read_digests={(0, 9): "a", (10, 19): "b"},
    read_bytes=200,
    foreign=(),
    copies=(Copies("one", WHOLE), Copies("two", WHOLE), Copies("three", ((0, 9),))),
    tailed=20,
)


def kinds(history: LedgerHistory, evidence: Evidence) -> set[str]:
    return {violation.kind for violation in judge(history, evidence)}


def test_a_kept_promise() -> None:
    assert judge(HISTORY, EVIDENCE) == []


def test_a_false_acknowledgement_is_found() -> None:
    history = replace(HISTORY, acked=[*HISTORY.acked, AckedRange(20, 20, "c")])
    assert kinds(history, EVIDENCE) == {"lost", "under-replicated"}


def test_a_member_that_repair_made_has_everything() -> None:
    copies = (*EVIDENCE.copies[:2], Copies("three", ((0, 9),), missing=((10, 19),)))
    evidence = replace(EVIDENCE, copies=copies)
    members = dict.fromkeys(("one", "two", "three"))
    assert kinds(replace(HISTORY, members=members), evidence) == set()
    del members["three"]
    assert kinds(replace(HISTORY, members=members), evidence) == {"incomplete"}
    recovered = replace(HISTORY, members=members, ended="recovered")  # by another client's change
    assert kinds(recovered, evidence) == set()


def test_a_changed_digest_is_found() -> None:
    history = replace(HISTORY, acked=[HISTORY.acked[0], AckedRange(10, 19, "changed")])
    assert kinds(history, EVIDENCE) == {"changed"}


def test_an_id_given_twice_is_found() -> None:
    history = replace(HISTORY, acked=[*HISTORY.acked, AckedRange(19, 19, "d")])
    evidence = replace(EVIDENCE, read_digests={**EVIDENCE.read_digests, (19, 19): "d"})
    assert kinds(history, evidence) == {"duplicate"}


def test_a_lac_beyond_the_end_is_found() -> None:
    assert kinds(replace(HISTORY, lac=20), EVIDENCE) == {"lost", "under-replicated"}


def test_a_lac_that_went_back_is_found() -> None:
    assert kinds(replace(HISTORY, lac_regressions=1), EVIDENCE) == {"lac went back"}


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        (replace(EVIDENCE, state="open"), "not closed"),
        (replace(EVIDENCE, last_entry_id=18, tailed=19), "lost"),
        (replace(EVIDENCE, last_entry_id=20, tailed=21), "two ends"),
        (replace(EVIDENCE, length=199), "length"),
        (replace(EVIDENCE, fragment_firsts=(0, 10, 10)), "fragments"),
        (replace(EVIDENCE, fragment_firsts=(1,)), "fragments"),
        (replace(EVIDENCE, fragment_firsts=(0, 21)), "fragments"),
        (replace(EVIDENCE, foreign=(3,)), "changed"),
        (replace(EVIDENCE, tailed=19), "tail"),
        (replace(EVIDENCE, copies=EVIDENCE.copies[:1]), "under-replicated"),
        (replace(EVIDENCE, copies=(*EVIDENCE.copies, Copies("x", (), ((3, 4),)))), "diverged"),
        (replace(EVIDENCE, copies=(*EVIDENCE.copies, Copies("x", (), (), ((3, 4),)))), "damaged"),
    ],
)
def test_violations_are_named(evidence: Evidence, kind: str) -> None:
    assert kind in kinds(HISTORY, evidence)


def test_entries_with_too_few_copies_are_found() -> None:
    sets = [((0, 9),), ((3, 4), (8, 20)), ((4, 4),)]
    assert covered_less_than(1, (0, 25), sets) == [(21, 25)]
    assert covered_less_than(3, (3, 5), sets) == [(3, 3), (5, 5)]
    assert covered_less_than(1, (0, 3), []) == [(0, 3)]

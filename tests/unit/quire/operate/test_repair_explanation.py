"""What a ledger lacks, and why it is not repaired yet."""

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from metadata.repair.claims import Claim
from metadata.repair.job_store import JOBS_MAX
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle
from metadata.repair.scrub import BadRange, ScrubRecord
from metadata.repair.settings import DEFAULTS
from quire.operate.repair import NO_COPY, Explanation, Unrepaired, damaged_parts, job_of
from quire.repair.bad_entries import bad_entries
from quire.repair.needs import RepairClass
from tests.support.sample_ledgers import IN_SYNC, bookies, closed_ledger, open_ledger

NOW_MS = 1_700_000_000_000
LOST = BookieLifecycle(Lifecycle.LOST)
DRAINING = BookieLifecycle(Lifecycle.DRAINING)
LIMBO = BookieLifecycle(Lifecycle.LIMBO)
NAME = JobName(2, 5_000, LedgerId(7))
JOB = Job(NAME, (), 0)
EARLIER = tuple(JobName(1, 9, LedgerId(each)) for each in (1, 2))


def explained(ledger: LedgerMetadata, up: str = "bcd", **states: BookieLifecycle) -> Explanation:
    lifecycles = {BookieId(name): record for name, record in states.items()}
    return Explanation(
        ledger=ledger,
        up=bookies(up),
        lifecycles=MappingProxyType(lifecycles),
        scrubs={},
        settings=DEFAULTS,
        auditor_id="a",
        published=(),
        job=None,
        claim=None,
        now_ms=NOW_MS,
    )


def damaged(explanation: Explanation, **ranges: tuple[int, int]) -> Explanation:
    """Return an explanation with one damaged range of the ledger on each bookie."""
    scrubs = {
        BookieId(name): ScrubRecord(bad=(BadRange(LedgerId(7), EntryId(first), EntryId(last)),))
        for name, (first, last) in ranges.items()
    }
    return replace(explanation, scrubs=scrubs)


@pytest.mark.parametrize(
    ("explanation", "urgency", "sentence"),
    [
        (explained(closed_ledger("bcd"), a=LOST), None, "It needs no repair."),
        (explained(open_ledger("bcd"), a=LOST), None, "It needs no repair."),
        (
            explained(closed_ledger("abc")),
            None,
            "It needs no repair yet: a is not up, and counts as lost when it has been away for "
            "600 s.",
        ),
        (
            explained(closed_ledger("abc"), "bd"),
            None,
            "It needs no repair yet: a, c are not up, and each counts as lost when it has been "
            "away for 600 s.",
        ),
        (
            explained(closed_ledger("abc"), a=LOST),
            RepairClass.SHORT_OF_WRITE_QUORUM,
            "The auditor has not published a job for it yet: `quire repair run` does.",
        ),
        (explained(closed_ledger("abc"), "abcd", a=LOST), None, "It needs no repair."),
        (
            explained(closed_ledger("abc"), "abcd", a=DRAINING),
            RepairClass.DRAINING,
            "The auditor has not published a job for it yet: `quire repair run` does.",
        ),
        (
            explained(closed_ledger("abc"), "abcd", a=LIMBO),
            RepairClass.SHORT_OF_WRITE_QUORUM,
            "The auditor has not published a job for it yet: `quire repair run` does.",
        ),
        (
            explained(open_ledger("abc"), "abcd", a=DRAINING),
            None,
            "The auditor has not published a job for it yet: `quire repair run` does.",
        ),
        (
            replace(explained(closed_ledger("abc"), a=LOST), published=(EARLIER[0],) * JOBS_MAX),
            RepairClass.SHORT_OF_WRITE_QUORUM,
            "It waits: the 1000 most urgent jobs are published first.",
        ),
        (
            replace(explained(closed_ledger("abc"), a=LOST), auditor_id=None),
            RepairClass.SHORT_OF_WRITE_QUORUM,
            "No auditor runs, so no job is published for it: start a bookie with repair.",
        ),
        (
            damaged(explained(closed_ledger("bcd")), b=(3, 4)),
            RepairClass.SHORT_OF_WRITE_QUORUM,
            "The auditor has not published a job for it yet: `quire repair run` does.",
        ),
        (
            damaged(explained(closed_ledger("bcd")), b=(3, 4), c=(0, 0), d=(1, 1)),
            RepairClass.LAST_COPY,
            "The auditor has not published a job for it yet: `quire repair run` does.",
        ),
        (
            damaged(explained(closed_ledger("abc")), a=(3, 4)),
            None,
            "It needs no repair yet: a is not up, and counts as lost when it has been away for "
            "600 s.",
        ),
        (
            damaged(explained(open_ledger("bcd")), b=(3, 4)),
            None,
            "It needs no repair yet: damaged entries of its open fragment are repaired once the "
            "fragment is closed.",
        ),
        (damaged(explained(closed_ledger("bcd")), a=(3, 4)), None, "It needs no repair."),
    ],
)
def test_a_ledger_without_a_job(
    explanation: Explanation, urgency: RepairClass | None, sentence: str
) -> None:
    assert explanation.sentence == sentence
    assert explanation.urgency == urgency


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "A worker repairs it in its turn: 2 jobs come before it."),
        (
            {"settings": replace(DEFAULTS, paused_until_ms=NOW_MS + 1)},
            "Repair is paused: `quire repair resume` ends the pause.",
        ),
        (
            {"claim": Claim(LedgerId(7), "w", 0, 1024, 2048, "d")},
            "Worker w repairs it: 1.0 KiB of about 2.0 KiB copied to d.",
        ),
        (
            {"claim": Claim(LedgerId(7), "w", 0)},
            "Worker w repairs it: 0 B copied.",
        ),
        (
            {"job": replace(JOB, state=JobState.BLOCKED, blocked_reason="needs 4 bookies, has 3")},
            "Blocked: needs 4 bookies, has 3.",
        ),
        (
            {"job": replace(JOB, blocked_reason="its writer lives")},
            "It waits, and is tried again each minute: its writer lives.",
        ),
        (
            {"job": replace(JOB, state=JobState.LOST, blocked_reason="no copy is left")},
            "Lost: no copy is left.",
        ),
    ],
)
def test_a_ledger_with_a_job(change: dict[str, object], sentence: str) -> None:
    explanation = replace(
        explained(closed_ledger("abc"), a=LOST), published=(*EARLIER, NAME), job=JOB
    )
    assert replace(explanation, **change).sentence == sentence  # type: ignore[arg-type]


def test_each_fragment_says_what_it_lacks() -> None:
    row = explained(open_ledger("abc", "bcd", "bce"), "bcde", a=LOST, e=DRAINING).as_json()
    assert (row["state"], row["class"]) == ("open", int(RepairClass.SHORT_OF_WRITE_QUORUM))
    assert row["fragments"] == [
        {
            "first_entry_id": 0,
            "is_open": False,
            "bookies": {"a": "not up, lost", "b": "up", "c": "up"},
            "incoming": [],
            "lacks": ["a copy in place of that of a, which is gone"],
        },
        {
            "first_entry_id": 10,
            "is_open": False,
            "bookies": {"b": "up", "c": "up", "d": "up"},
            "incoming": [],
            "lacks": [],
        },
        {
            "first_entry_id": 20,
            "is_open": True,
            "bookies": {"b": "up", "c": "up", "e": "up, draining"},
            "incoming": [],
            "lacks": ["e: the open fragment's writer replaces it"],
        },
    ]


def test_a_fragment_without_any_copy_says_so() -> None:
    ledger = closed_ledger("ab", "cd", quorum=QuorumSpec(2, 2, 2))
    row = explained(ledger, "d", a=LOST, b=LOST, c=LOST).as_json()
    assert row["class"] == int(RepairClass.LAST_COPY), "the second fragment can be repaired"
    fragments = row["fragments"]
    assert isinstance(fragments, list)
    assert [fragment["lacks"] for fragment in fragments] == [
        [NO_COPY],
        ["a copy in place of that of c, which is gone"],
    ]


def fates(explanation: Explanation) -> list[tuple[str, int, int, str]]:
    rows = explanation.as_json()["damaged"]
    assert isinstance(rows, list)
    return [tuple(row.values()) for row in rows]


def test_damaged_entries_are_shown_with_what_happens_to_them() -> None:
    two = open_ledger("abc", "bcd")
    assert fates(explained(two, "abcd")) == []
    explanation = damaged(explained(two, "abcd"), b=(8, 12), a=(10, 10))
    assert fates(explanation) == [
        ("a", 10, 10, Unrepaired.NOT_A_MEMBER),
        ("b", 8, 9, "by a job, which is not published yet"),
        ("b", 10, 12, Unrepaired.OPEN),
    ]
    fragments = explanation.as_json()["fragments"]
    assert isinstance(fragments, list)
    assert [fragment["lacks"] for fragment in fragments] == [
        ["a good copy of entries 8 to 9 on b"],
        [],
    ]
    with_job = replace(explanation, job=JOB, published=(NAME,))
    assert ("b", 8, 9, "by the ledger's job") in fates(with_job)


@pytest.mark.parametrize(
    ("up", "state", "fate"),
    [
        ("cd", None, "once this bookie is up again; if it is lost, other bookies get its copies"),
        ("cd", LOST, "not on this bookie, which is gone: other bookies get its copies"),
        ("bcd", DRAINING, "not on this bookie, which drains: other bookies get its copies"),
        ("bcd", LIMBO, "not on this bookie, which may have lost entries: other bookies get its "),
    ],
)
def test_damaged_entries_of_a_bookie_that_is_away_or_leaves_make_no_job(
    up: str, state: BookieLifecycle | None, fate: str
) -> None:
    states = {} if state is None else {"b": state}
    explanation = explained(closed_ledger("bcd"), up, **states)
    (found,) = fates(damaged(explanation, b=(3, 3)))
    assert found[3].startswith(fate)
    is_counted = state is DRAINING  # its other copies are good
    urgency = RepairClass.SHORT_OF_WRITE_QUORUM if is_counted else explanation.urgency
    assert damaged(explanation, b=(3, 3)).urgency == urgency


def test_an_in_sync_fragment_may_lack_a_member() -> None:
    explanation = explained(closed_ledger("bc", quorum=IN_SYNC))
    fragments = explanation.as_json()["fragments"]
    assert isinstance(fragments, list)
    assert [fragment["lacks"] for fragment in fragments] == [["one more member"]]
    assert explanation.sentence.startswith("The auditor has not published")


def test_the_job_of_a_ledger() -> None:
    assert job_of((*EARLIER, NAME), LedgerId(7)) == NAME
    assert job_of(EARLIER, LedgerId(7)) is None


A = BookieId("a")
LEDGERS = (
    open_ledger("abc"),
    open_ledger("abc", "bcd", "abd"),
    closed_ledger("abc"),
    closed_ledger("bcd", "abc"),
    open_ledger("abc", quorum=IN_SYNC),
    closed_ledger("abc", "bcd").with_lost([(3, 5), (8, 12)], 5, UpdateToken(bytes(16))),
)


def record(*ranges: tuple[int, int], ledger_id: int = 7) -> ScrubRecord:
    bad = (BadRange(LedgerId(ledger_id), EntryId(first), EntryId(last)) for first, last in ranges)
    return ScrubRecord(bad=tuple(bad))


@given(st.sampled_from(LEDGERS), st.integers(0, 200), st.integers(0, 200))
def test_each_damaged_entry_is_in_one_part(ledger: LedgerMetadata, first: int, count: int) -> None:
    reported = record((first, first + count))
    parts = damaged_parts(ledger, {A: reported})
    entries = [
        entry_id
        for part in parts
        for entry_id in range(part.entries.first_entry_id, part.entries.last_entry_id + 1)
    ]
    assert entries == list(range(first, first + count + 1))
    repairable = [part.entries for part in parts if part.why_not is None]
    assert repairable == bad_entries(ledger, A, reported.bad)


def test_entries_after_the_end_need_no_copy() -> None:
    ledger = closed_ledger("abc")
    end = ledger.last_entry_id
    assert end is not None
    found = damaged_parts(ledger, {A: record((end, end + 5))})
    assert [(part.entries.first_entry_id, part.why_not) for part in found] == [
        (end, None),
        (end + 1, Unrepaired.AFTER_THE_END),
    ]


def test_an_in_sync_ledger_is_repaired_once_it_is_closed() -> None:
    (found,) = damaged_parts(open_ledger("abc", quorum=IN_SYNC), {A: record((0, 3))})
    assert found.why_not is Unrepaired.OPEN


def test_other_ledgers_are_left_out() -> None:
    assert damaged_parts(closed_ledger("abc"), {A: record((0, 3), ledger_id=8)}) == []

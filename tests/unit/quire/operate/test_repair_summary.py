"""State of repair in one sentence, and its figures."""

from dataclasses import replace

import pytest

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.claims import Claim
from metadata.repair.jobs import JobName
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle
from metadata.repair.scrub import NEVER_SCRUBBED, BadRange, ScrubPosition, ScrubRecord
from metadata.repair.settings import DEFAULTS, RepairSettings
from metadata.repair.status import (
    BLOCKED_REASONS_MAX,
    AwayBookie,
    BlockedTotal,
    RepairStatus,
    UrgencyTotal,
)
from quire.operate.repair import RepairSummary, claim_as_json, scrub_text, urgency_text
from quire.repair.needs import RepairClass

NOW_MS = 1_700_000_000_000
DONE = RepairStatus("a", NOW_MS - 9_000, NOW_MS - 8_000, NOW_MS - 1_000)
LEFT = replace(
    DONE,
    totals=(
        UrgencyTotal(RepairClass.LAST_COPY, 1, 1024),
        UrgencyTotal(RepairClass.DRAINING, 40, 2048),
    ),
    bytes_left=3 * 1024,
    bytes_per_s=10,
    eta_s=308,
)
STUCK = replace(
    LEFT,
    bytes_per_s=0,
    eta_s=None,
    blocked=tuple(BlockedTotal(f"needs {n} bookies, has 2", n) for n in (1, 3, 4, 5)),
)
LOST = replace(DONE, totals=(UrgencyTotal(RepairClass.LOST, 2, 9),), lost_ledgers=2)
SUMMARY = RepairSummary(NOW_MS, DEFAULTS, "a", DONE, ("a", "b"), (), (), (), {}, {})
SCRUBS = {
    BookieId("c"): ScrubRecord(
        served_ms=5,
        ended_ms=NOW_MS - 7_200_000,
        bad=(BadRange(LedgerId(7), EntryId(3), EntryId(4)),),
    )
}
C = BookieId("c")
LOST_STATE = BookieLifecycle(Lifecycle.LOST)
OPEN_JOBS = tuple(JobName(2, 0, LedgerId(each)) for each in (1, 2))
"""Jobs of ledgers that need something only in their open fragments: no total counts them."""
ONLY_BLOCKED = replace(DONE, eta_s=0, blocked=(BlockedTotal("its writer lives", 2),))
MANY_REASONS = tuple(BlockedTotal(f"reason {number}", 1) for number in range(BLOCKED_REASONS_MAX))
CLAIM = Claim(LedgerId(1), "b", NOW_MS - 10_000, 1024, 2048, "c")
PAUSED = replace(DEFAULTS, paused_until_ms=NOW_MS + 29 * 60_000)


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        (SUMMARY, "Nothing to repair."),
        (replace(SUMMARY, settings=PAUSED), "Nothing to repair."),
        (
            replace(SUMMARY, auditor_id=None),
            "No auditor runs, so nothing is found or repaired: start a bookie with repair.",
        ),
        (replace(SUMMARY, status=None), "The first audit is not complete yet."),
        (
            replace(SUMMARY, status=replace(DONE, audited_ms=None)),
            "The first audit is not complete yet.",
        ),
        (
            replace(SUMMARY, status=replace(DONE, written_ms=NOW_MS - 600_000)),
            "The auditor has not written its summary for 10 min: see its log.",
        ),
        (
            replace(SUMMARY, status=LEFT),
            "Repairing: 41 ledgers to repair, 3.0 KiB, about 5 min left.",
        ),
        (
            replace(SUMMARY, status=LEFT, settings=PAUSED),
            "Paused for 29 min: 41 ledgers to repair, 3.0 KiB.",
        ),
        (
            replace(SUMMARY, status=STUCK),
            "Repairing: 41 ledgers to repair, 3.0 KiB, time left unknown, 13 blocked: "
            "needs 5 bookies, has 2 (5 ledgers); needs 4 bookies, has 2 (4 ledgers); "
            "needs 3 bookies, has 2 (3 ledgers).",
        ),
        (
            replace(SUMMARY, status=replace(STUCK, blocked=())),
            "Repairing: 41 ledgers to repair, 3.0 KiB, time left unknown.",
        ),
        (
            replace(SUMMARY, status=LOST),
            "Nothing to repair; 2 ledgers with lost entries: quire repair list --lost.",
        ),
        (
            replace(SUMMARY, status=ONLY_BLOCKED, published=OPEN_JOBS),
            "Blocked: 2 ledgers to repair, 2 blocked: its writer lives (2 ledgers).",
        ),
        (
            replace(SUMMARY, status=ONLY_BLOCKED, published=OPEN_JOBS, claims=(CLAIM,)),
            "Repairing: 2 ledgers to repair, time left unknown, 2 blocked: "
            "its writer lives (2 ledgers).",
        ),
        (
            replace(SUMMARY, status=replace(STUCK, blocked=MANY_REASONS)),
            "Repairing: 41 ledgers to repair, 3.0 KiB, time left unknown, at least 20 blocked: "
            "reason 0 (1 ledger); reason 1 (1 ledger); reason 2 (1 ledger).",
        ),
        (
            replace(SUMMARY, published=OPEN_JOBS),
            "Repairing: 2 ledgers to repair, time left unknown.",
        ),
        (
            replace(SUMMARY, status=LEFT, claims=(CLAIM, replace(CLAIM, total_bytes=0))),
            "Repairing: 41 ledgers to repair, 3.0 KiB (1.0 KiB copied), about 21 s left.",
        ),
        (
            replace(SUMMARY, status=replace(LEFT, bytes_per_s=2_000, eta_s=2), claims=(CLAIM,)),
            "Repairing: 41 ledgers to repair, 3.0 KiB (1.0 KiB copied), about 2 s left.",
        ),
        (
            replace(SUMMARY, scrubs=SCRUBS),
            "Nothing to repair now; 2 damaged entries have no job, see quire repair explain 7.",
        ),
        (replace(SUMMARY, scrubs=SCRUBS, lifecycles={C: LOST_STATE}), "Nothing to repair."),
        (
            replace(SUMMARY, scrubs=SCRUBS, published=(JobName(2, 0, LedgerId(7)),)),
            "Repairing: 1 ledger to repair, time left unknown.",
        ),
    ],
)
def test_the_sentence_says_what_is_left(summary: RepairSummary, sentence: str) -> None:
    assert summary.sentence == sentence
    assert summary.as_json()["state"] == sentence


C_AWAY = replace(DONE, away=(AwayBookie(C, NOW_MS - 180_000),))


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        (
            replace(SUMMARY, not_up=(C,), status=C_AWAY),
            "Nothing to repair now; c is away: it counts as lost in 7 min, and then its copies are "
            "made again.",
        ),
        (
            replace(SUMMARY, not_up=(C,)),
            "Nothing to repair now; c is away: it counts as lost 10 min after it left, and then "
            "its copies are made again.",
        ),
        (
            replace(SUMMARY, not_up=(C,), status=C_AWAY, auditor_id="another"),
            "Nothing to repair now; c is away: it counts as lost 10 min after it left, and then "
            "its copies are made again.",
        ),
        (
            replace(SUMMARY, not_up=(C,), status=replace(LEFT, away=C_AWAY.away)),
            "Repairing: 41 ledgers to repair, 3.0 KiB, about 5 min left; c is away: it counts as "
            "lost in 7 min, and then its copies are made again.",
        ),
        (
            replace(SUMMARY, not_up=tuple(map(BookieId, "bcdef")), status=C_AWAY),
            "Nothing to repair now; b, c, d and 2 more are away: the first of them counts as lost "
            "in 7 min, and then its copies are made again.",
        ),
        (replace(SUMMARY, not_up=(C,), lifecycles={C: LOST_STATE}), "Nothing to repair."),
        (replace(SUMMARY, status=C_AWAY), "Nothing to repair."),
        (
            replace(SUMMARY, not_up=(C,), lifecycles={C: replace(LOST_STATE, since_ms=NOW_MS)}),
            "Nothing to repair now; c is lost, which the auditor has not counted yet.",
        ),
    ],
)
def test_bookies_that_are_away_are_named(summary: RepairSummary, sentence: str) -> None:
    assert summary.sentence == sentence


def test_the_figures() -> None:
    claim = Claim(LedgerId(7), "b", NOW_MS - 5_500, 3, 9, "c")
    states = {
        BookieId("c"): BookieLifecycle(Lifecycle.ACTIVE, 5, "undrain"),
        BookieId("d"): BookieLifecycle(Lifecycle.DRAINING, 6, "a new machine"),
    }
    row = replace(
        SUMMARY, settings=PAUSED, status=STUCK, claims=(claim,), lifecycles=states, scrubs=SCRUBS
    ).as_json()
    assert row["paused_until_ms"] == PAUSED.paused_until_ms
    assert (row["bytes_per_s_max"], row["bookie_bytes_per_s_max"]) == (50_000_000, 25_000_000)
    assert row["source_bytes_per_s_max"] == 25_000_000
    assert (row["ledgers_left"], row["bytes_left"], row["copied_bytes"]) == (41, 3072, 3)
    assert (row["bytes_per_s"], row["eta_s"]) == (1, 3069)
    assert row["classes"] == [
        {"class": 0, "what": "at most one good copy left", "ledgers": 1, "bytes": 1024},
        {"class": 3, "what": "copies on draining bookies", "ledgers": 40, "bytes": 2048},
    ]
    assert row["claims"] == [
        {
            "ledger": 7,
            "worker": "b",
            "target": "c",
            "copied_bytes": 3,
            "total_bytes": 9,
            "percent": 33,
            "for_s": 5,
        }
    ]
    assert row["bookies"] == [
        {
            "id": "d",
            "lifecycle": "draining",
            "since_ms": 6,
            "reason": "a new machine",
            "next": "wait: quire repair status shows what is left",
        }
    ]
    assert row["scrubs"] == [
        {
            "id": "c",
            "scrub": "ended 2.0 h ago",
            "checked_bytes": 0,
            "began_ms": None,
            "ended_ms": NOW_MS - 7_200_000,
            "bad_entries": 2,
            "bad_ranges": [[7, 3, 4]],
        }
    ]


def test_bookies_that_are_away_are_listed() -> None:
    row = replace(SUMMARY, not_up=(BookieId("b"), C), status=C_AWAY).as_json()
    next_step = "start it: quire bookie run --data-dir DIR; if its disk is gone, wait for repair"
    assert row["away"] == [
        {"id": "b", "lost_in_s": None, "next": next_step},
        {"id": "c", "lost_in_s": 420, "next": next_step},
    ]


def test_a_claim_without_an_estimate_has_no_total() -> None:
    shown = claim_as_json(replace(CLAIM, total_bytes=0), NOW_MS)
    assert (shown["copied_bytes"], shown["total_bytes"], shown["percent"]) == (1024, None, None)
    shown = claim_as_json(replace(CLAIM, total_bytes=512), NOW_MS)
    assert (shown["total_bytes"], shown["percent"]) == (1024, 100)


def test_a_pause_that_ended_and_no_ceiling_are_not_shown() -> None:
    settings = replace(DEFAULTS, paused_until_ms=NOW_MS, bytes_per_s=0)
    row = replace(SUMMARY, settings=settings, status=None).as_json()
    assert (row["paused_until_ms"], row["bytes_per_s_max"]) == (None, None)
    assert "bytes_left" not in row


def test_every_class_has_a_text() -> None:
    texts = [urgency_text(repair_class) for repair_class in RepairClass]
    assert len(set(texts)) == len(texts)
    assert urgency_text(8) == "class 8"


SCRUBBED = ScrubRecord(served_ms=5, began_ms=9, ended_ms=NOW_MS - 90_000)
OFF = replace(DEFAULTS, scrub_bytes_per_s=0)


@pytest.mark.parametrize(
    ("record", "settings", "text"),
    [
        (NEVER_SCRUBBED, DEFAULTS, "none ended yet"),
        (SCRUBBED, DEFAULTS, "ended 2 min ago"),
        (SCRUBBED, OFF, "off, ended 2 min ago"),
        (replace(SCRUBBED, requested_ms=6), DEFAULTS, "requested, ended 2 min ago"),
        (replace(SCRUBBED, requested_ms=5), DEFAULTS, "ended 2 min ago"),
        (NEVER_SCRUBBED, replace(DEFAULTS, scrub_requested_ms=1), "requested, none ended yet"),
        (
            replace(SCRUBBED, began_ms=NOW_MS - 30_000, position=ScrubPosition(7, EntryId(3))),
            DEFAULTS,
            "under way since 30 s, at ledger 7",
        ),
    ],
)
def test_what_a_scrub_does(record: ScrubRecord, settings: RepairSettings, text: str) -> None:
    assert scrub_text(record, settings, NOW_MS) == text

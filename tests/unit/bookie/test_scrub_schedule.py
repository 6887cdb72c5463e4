"""Schedule of a scrub: when it begins, where it continues, and how long it rests."""

from dataclasses import replace

import pytest

from bookie.scrubber import (
    LOOKUP_COST_BYTES,
    PAUSE_S_MAX,
    READ_COST_BYTES,
    Begin,
    Check,
    Rest,
    ended,
    next_step,
    passed,
    pause_s,
)
from metadata.ids import LEDGER_ID_MAX, EntryId, LedgerId
from metadata.repair.scrub import NEVER_SCRUBBED, BadRange, ScrubPosition, ScrubRecord
from metadata.repair.settings import RepairSettings

SETTINGS = RepairSettings(scrub_bytes_per_s=1_000_000, scrub_every_s=100)
DONE = ScrubRecord(served_ms=5, began_ms=10_000, ended_ms=20_000, checked_bytes=9)
BAD = (BadRange(LedgerId(1), EntryId(2), EntryId(3)),)


@pytest.mark.parametrize(
    ("record", "settings", "due_ms"),
    [
        (NEVER_SCRUBBED, SETTINGS, 7_000),
        (DONE, SETTINGS, 110_000),
        (DONE, replace(SETTINGS, scrub_every_s=0), None),
        (DONE, replace(SETTINGS, scrub_bytes_per_s=0), None),
        (replace(DONE, requested_ms=5), SETTINGS, 110_000),
    ],
)
def test_a_bookie_rests_until_its_next_scrub(
    record: ScrubRecord, settings: RepairSettings, due_ms: int | None
) -> None:
    assert next_step(record, settings, 6_999, 7_000) == Rest(due_ms)
    if due_ms is not None:
        assert isinstance(next_step(record, settings, due_ms, 7_000), Begin)


@pytest.mark.parametrize(
    ("requested_ms", "all_ms", "served_ms"), [(6, 0, 6), (0, 7, 7), (6, 7, 7), (7, 6, 7)]
)
def test_a_request_begins_a_scrub_at_once(requested_ms: int, all_ms: int, served_ms: int) -> None:
    record = replace(DONE, requested_ms=requested_ms, bad=BAD)
    settings = replace(SETTINGS, scrub_requested_ms=all_ms, scrub_every_s=0)
    begun = replace(
        record,
        served_ms=served_ms,
        began_ms=30_000,
        position=ScrubPosition(0, EntryId(0)),
        checked_bytes=0,
    )
    assert next_step(record, settings, 30_000, 0) == Begin(begun)
    assert begun.bad == BAD, "damage is known until it is repaired"
    assert next_step(ended(begun, 31_000), settings, 32_000, 0) == Rest(None)


def test_a_request_during_a_scrub_begins_another_one() -> None:
    position = ScrubPosition(4, EntryId(7))
    record = replace(DONE, position=position, requested_ms=30_000)
    assert next_step(record, SETTINGS, 40_000, 0) == Check(position)
    assert isinstance(next_step(ended(record, 41_000), SETTINGS, 41_000, 0), Begin)


def test_a_scrub_stops_where_it_is_while_the_rate_is_zero() -> None:
    record = replace(DONE, position=ScrubPosition(4, EntryId(7)), requested_ms=30_000)
    assert next_step(record, replace(SETTINGS, scrub_bytes_per_s=0), 40_000, 0) == Rest(None)


def test_a_scrub_passes_runs_and_ledgers() -> None:
    record = replace(DONE, position=ScrubPosition(4, EntryId(7)))
    after = passed(record, LedgerId(5), EntryId(3), 100)
    assert (after.position, after.checked_bytes) == (ScrubPosition(5, EntryId(3)), 109)
    after = passed(after, LedgerId(5), None, 0)
    assert (after.position, after.checked_bytes) == (ScrubPosition(6, EntryId(0)), 109)
    after = passed(after, LedgerId(LEDGER_ID_MAX), None, 0)
    assert after.position == ScrubPosition(LEDGER_ID_MAX + 1, EntryId(0))
    assert ended(after, 50_000) == replace(after, position=None, ended_ms=50_000)


def test_pauses_keep_the_rate() -> None:
    assert pause_s(2_000_000, SETTINGS) == 2.0
    assert pause_s(1, SETTINGS) == READ_COST_BYTES / 1_000_000
    assert pause_s(0, SETTINGS) == LOOKUP_COST_BYTES / 1_000_000
    assert pause_s(2_000_000, replace(SETTINGS, scrub_bytes_per_s=1)) == PAUSE_S_MAX

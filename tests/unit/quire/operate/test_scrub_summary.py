"""Text of a bookie's scrub for operators."""

from dataclasses import replace

import pytest

from metadata.ids import EntryId
from metadata.repair.scrub import NEVER_SCRUBBED, ScrubPosition, ScrubRecord
from metadata.repair.settings import DEFAULTS, RepairSettings
from quire.operate.repair_summary import scrub_text

NOW_MS = 1_700_000_000_000
DONE = ScrubRecord(served_ms=5, began_ms=9, ended_ms=NOW_MS - 90_000)
OFF = replace(DEFAULTS, scrub_bytes_per_s=0)


@pytest.mark.parametrize(
    ("record", "settings", "text"),
    [
        (NEVER_SCRUBBED, DEFAULTS, "none ended yet"),
        (DONE, DEFAULTS, "ended 2 min ago"),
        (DONE, OFF, "off, ended 2 min ago"),
        (replace(DONE, requested_ms=6), DEFAULTS, "requested, ended 2 min ago"),
        (replace(DONE, requested_ms=5), DEFAULTS, "ended 2 min ago"),
        (NEVER_SCRUBBED, replace(DEFAULTS, scrub_requested_ms=1), "requested, none ended yet"),
        (
            replace(DONE, began_ms=NOW_MS - 30_000, position=ScrubPosition(7, EntryId(3))),
            DEFAULTS,
            "under way since 30 s, at ledger 7",
        ),
    ],
)
def test_what_a_scrub_does(record: ScrubRecord, settings: RepairSettings, text: str) -> None:
    assert scrub_text(record, settings, NOW_MS) == text

"""Starts on copies of a busy bookie's disk deny no recorded entry (rule 2.6)."""

from tests.faults.budget import Budget
from tests.faults.old_copies import OldCopies


def test_no_copy_denies_what_was_acknowledged_before_the_last_record() -> None:
    summary = OldCopies(Budget(seed=3)).run()
    assert summary.violations == []
    assert summary.is_whole
    counts = summary.counts
    assert counts["the disk itself: serves"] > 0
    for kind in ("block by block", "file by file"):
        assert counts[f"{kind}: limbo"] > 0

"""Seeded bugs of the scrub, and of the repair of damaged entries.

Leaves the other repairs to `repair`.

Source: protocol rules 4.3 and 9.12.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    units,
)

STORIES = "tests/unit/repair/test_scrub_story.py"
CHECKS = "tests/unit/bookie/storage/test_checks.py"
NOT_MODELLED = hidden_from_model("the log, its files and repair are no part of the model")
NOT_SHOWN = hidden_from_simulation("whether the simulation with repair finds it was not tried yet")

BUGS = (
    SeededBug(
        "last_run_is_not_checked",
        "A scrub ends before the last run of each ledger.",
        ("9.12",),
        (
            Edit(
                "bookie/storage/ledger_reads.py",
                "        last, first, _, size = found.runs[0]\n",
                "        last, first, _, size = found.runs[0]\n"
                "        if last == state.highest:\n"
                "            return CheckResult(None, 0)\n",
            ),
        ),
        (units(CHECKS, STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "stored_before_it_is_verified",
        "The repair of a range stores entries whose digests were not checked.",
        ("9.12",),
        (
            Edit(
                "ledger_client/digest.py",
                "    batch.verify_crc()\n    if keys.mac_key is not None:\n",
                "    if keys.mac_key is not None:\n",
            ),
        ),
        (units("tests/unit/ledger_client/in_sync/test_range_copy.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "good_copy_is_replaced",
        "An add for entries that are partly damaged replaces the good copies too.",
        ("4.3", "9.12"),
        (
            Edit(
                "bookie/storage/overlapping.py",
                "                gaps.append((entry_id, stop))\n"
                "                entry_id = stop + 1\n",
                "                return [(int(batch.header.first_entry_id), last)]\n",
            ),
        ),
        (units(CHECKS),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "repaired_range_stays_reported",
        "A bookie goes on reporting entries as damaged after good copies were stored.",
        ("9.12",),
        (
            Edit(
                "bookie/storage/commits.py",
                "            self._bad.clear(ledger_id, first, header.last_entry_id)"
                "  # the rest was compared\n",
                "",
            ),
        ),
        (units(CHECKS, STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "memory_hides_the_damaged_disk",
        "A repair's add is answered OK because memory has the batch, and the disk stays damaged.",
        ("4.3", "9.12"),
        (
            Edit(
                "bookie/storage/overlapping.py",
                "        if is_repetition and not self._is_bad(add):\n",
                "        if is_repetition:\n",
            ),
        ),
        (units(CHECKS),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "damage_outside_the_ledger_is_a_job",
        "The auditor publishes a job for every report, also for entries that need no repair.",
        ("9.12",),
        (
            Edit(
                "repair/damaged_ledgers.py",
                "                if bad_entries(ledger, bookie_id, ranges)\n",
                "                if ranges or bad_entries(ledger, bookie_id, ranges)\n",
            ),
        ),
        (units("tests/unit/repair/test_damaged_ledgers.py", STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "a_restart_begins_the_scrub_again",
        "A bookie that starts again checks everything from the start again.",
        ("9.12",),
        (
            Edit(
                "bookie/scrub/scrubber.py",
                "        self._storage.bad_ranges.restore(self._stored.bad)\n",
                "        self._storage.bad_ranges.restore(self._stored.bad)\n"
                "        self.record = replace(self.record, position=None, served_ms=0)\n",
            ),
        ),
        (units("tests/unit/bookie/scrub/test_scrubber.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
)

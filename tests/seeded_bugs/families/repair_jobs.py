"""Seeded bugs of the jobs of repair: when blocked ones are tried again.

Leaves what is repaired to `repair`.

Source: protocol rule 9.3.
"""

from tests.seeded_bugs.families.repair import NOT_MODELLED, NOT_SHOWN, UNITS
from tests.seeded_bugs.seeded_bug import Edit, SeededBug, units

RETRIES = f"{UNITS}/test_retries.py"
BLOCKED = f"{UNITS}/test_blocked_story.py"
SEVERAL = f"{UNITS}/test_many_needs_story.py"

BUGS = (
    SeededBug(
        "blocked_for_ever",
        "A blocked job is not queued again when a bookie joins.",
        ("9.3",),
        (
            Edit(
                "repair/retries.py",
                "            if job.state is JobState.BLOCKED and self._is_due(",
                "            if job.state is JobState.LOST and self._is_due(",
            ),
        ),
        (units(RETRIES, BLOCKED),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "blocked_by_an_old_view",
        "A job that a worker blocks by what it saw before a bookie joined is not tried again.",
        ("9.3",),
        (
            Edit(
                "repair/retries.py",
                "        return queued_s < self._changed_s or queued_s < seen_s <= now_s\n",
                "        return now_s == self._changed_s\n",
            ),
        ),
        (units(RETRIES, BLOCKED),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "changed_ledger_stays_blocked",
        "A blocked job is not queued again when its ledger changes, such as by a recovery.",
        ("9.3",),
        (
            Edit(
                "repair/retries.py",
                "            if name in published and name.ledger_id not in changed\n",
                "            if name in published\n",
            ),
        ),
        (units(RETRIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "blocked_ledgers_fill_the_list",
        "Blocked ledgers keep their places among the published jobs, so that no other is repaired.",
        ("9.3",),
        (
            Edit(
                "repair/ledger_index.py",
                "                is_ranked = LedgerId(ledger_id) not in set_aside\n",
                "                is_ranked = True\n",
            ),
        ),
        (units(f"{UNITS}/test_ledger_index.py", BLOCKED),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "lost_fragment_stops_the_ledger",
        "A ledger with entries that have no copy is not repaired, also where it could be.",
        ("9.3", "9.6"),
        (
            Edit(
                "repair/needs.py",
                "    return min((each for each in found if each is not None), default=None)\n",
                "    left = [each for each in found if each is not None]\n"
                "    lost = RepairClass.LOST\n"
                "    return lost if lost in left else min(left, default=None)\n",
            ),
        ),
        (units(f"{UNITS}/test_needs.py", SEVERAL),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "lost_stripe_stops_the_fragment",
        "A write set without a copy stops the repair of positions that hold none of its entries.",
        ("9.3", "9.7"),
        (
            Edit(
                "repair/needs.py",
                "            cause = CAUSES.get(standings.of(bookie_id))\n",
                "            cause = CAUSES.get(standings.of(bookie_id))\n"
                "            lost = frozenset(holders.ensemble if lost else ())\n",
            ),
        ),
        (units(f"{UNITS}/test_needs.py", SEVERAL),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "first_unmet_need_stops_the_ledger",
        "A fragment that cannot be copied keeps the later fragments of its ledger waiting.",
        ("9.3",),
        (
            Edit(
                "repair/ledger_repair.py",
                "                case Blocked() | Postponed():\n"
                "                    unmet[need] = outcome\n",
                "                case Blocked() | Postponed():\n"
                "                    return outcome\n",
            ),
        ),
        (units(SEVERAL),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "new_damage_of_a_blocked_ledger_waits",
        "More damaged entries of a ledger whose job is blocked are not repaired before a bookie "
        "joins.",
        ("9.3", "9.12"),
        (
            Edit(
                "repair/auditor.py",
                "        self._pass.changed |= self._changes.of_ledgers(reports, missing)\n",
                "",
            ),
        ),
        (units(f"{UNITS}/test_scrub_story.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
)

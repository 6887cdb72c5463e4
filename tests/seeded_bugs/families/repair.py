"""Seeded bugs of repair.

Leaves copies to members that catch up to `in_sync`.

Source: protocol rule 9.8.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, simulation

BUGS = (
    SeededBug(
        "bookie-drained-while-ledgers-name-it",
        "A bookie that drains is drained at once, although ledgers name it.",
        ("9.8",),
        (
            Edit(
                "repair/unnamed_bookies.py",
                "            if state in EMPTIED and not self._index.count_naming(each)\n",
                "            if state in EMPTIED\n",
            ),
            Edit(
                "repair/auditor.py",
                "            if not self._index.count_naming(change.bookie_id)"
                " and not self._pass.unreadable_count:\n",
                "            if not self._pass.unreadable_count:\n",
            ),
        ),
        (simulation(),),
    ),
)

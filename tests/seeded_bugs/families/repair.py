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
                "quire/repair/ledger_reads.py",
                "            if state in EMPTIED and not self._index.count_naming(bookie)\n",
                "            if state in EMPTIED\n",
            ),
            Edit(
                "quire/repair/ledger_reads.py",
                "            return None if is_named else change\n",
                "            return change\n",
            ),
        ),
        (simulation(),),
    ),
)

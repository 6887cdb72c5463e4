"""Seeded bugs of the deletion of ledgers by bookies.

Leaves the rest of what a bookie stores to `bookie_fences` and `bookie_log`.

Source: protocol rules 10.1 and 10.2; BookKeeper #870, #4462, #4607.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, simulation

COLLECTOR = "bookie/server/collector.py"

BUGS = (
    SeededBug(
        "ledger-deleted-on-a-stale-listing",
        "A ledger that is absent from a stale read is deleted without a second, agreed read.",
        ("10.1",),
        (
            Edit(
                COLLECTOR,
                "            removable = await self._removable(wanted, agreed=True)\n",
                "            removable = await self._removable(wanted, agreed=False)\n",
            ),
        ),
        (simulation("metadata"),),
    ),
)

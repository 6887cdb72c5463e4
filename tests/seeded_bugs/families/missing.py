"""Seeded bugs of the comparison of copies with the metadata.

Leaves damaged entries to `scrub`, and the other repairs to `repair`.

Source: protocol rule 9.16.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    units,
)

STORIES = "tests/unit/repair/missing/test_missing_story.py"
COMPARISON = "tests/unit/repair/missing/test_comparison.py"
NOT_MODELLED = hidden_from_model("what members lack after a close is no part of the model")
HARMLESS = hidden_from_simulation("copies that are not needed are stored as repetitions")
NOT_SHOWN = hidden_from_simulation("whether the simulation with repair finds it was not tried yet")

BUGS = (
    SeededBug(
        "silence_is_a_missing_copy",
        "A member that does not answer counts as one that lacks every entry.",
        ("9.16",),
        (
            Edit(
                "repair/missing/comparison.py",
                "                found.unknown[bookie_id] = str(error)\n",
                "                missing = _first(ledger, bookie_id, ranges_max)\n"
                "                found.missing[bookie_id] = missing\n",
            ),
        ),
        (units(COMPARISON),),
        (NOT_MODELLED, HARMLESS),
    ),
    SeededBug(
        "compared_with_old_metadata",
        "Entries count as missing although the metadata changed while the members were asked.",
        ("9.16",),
        (
            Edit(
                "repair/missing/comparison.py",
                "        return Comparison(has_changed=True)\n",
                "        return found\n",
            ),
        ),
        (units(COMPARISON),),
        (NOT_MODELLED, HARMLESS),
    ),
    SeededBug(
        "an_absent_member_is_never_asked",
        "A ledger with a member that was away at its comparison is not compared when it returns.",
        ("9.16",),
        (
            Edit(
                "repair/missing/missing_copies.py",
                "            self._order.put_off(ledger_id)\n            until_s",
                "            until_s",
            ),
        ),
        (units(STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "a_close_is_not_followed",
        "Only the slow walk over all ledgers finds what a close left at the ack quorum.",
        ("9.16",),
        (
            Edit(
                "repair/missing/check_order.py",
                "            self.note((ledger_id,))\n",
                "            return\n",
            ),
        ),
        (units("tests/unit/repair/missing/test_check_order.py", STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
)

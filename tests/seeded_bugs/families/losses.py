"""Seeded bugs of accepted losses: entries that are not lost, ends that move, reads that mislead.

Leaves repair itself to `repair`.

Source: protocol rules 8.6 and 9.9-9.11.
"""

from tests.seeded_bugs.seeded_bug import (
    SCENARIOS,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    units,
)

UNITS = "tests/unit/repair"
DECISIONS = f"{UNITS}/losses/test_lost_ranges.py"
SEARCHES = f"{UNITS}/losses/test_acceptance.py"
ENDS = f"{UNITS}/losses/test_undecided_end.py"
STORIES = f"{UNITS}/losses/test_losses_of_a_cluster.py"
NOT_MODELLED = hidden_from_model("no loss is accepted in the model of repair")
NOT_SIMULATED = hidden_from_simulation("no simulated operator accepts a loss")
UNSEEN = (NOT_MODELLED, NOT_SIMULATED)

BUGS = (
    SeededBug(
        "timeout_counts_as_lost",
        "Entries of which a bookie gave no answer count as lost.",
        ("9.10",),
        (
            Edit(
                "repair/losses/lost_ranges.py",
                "        return without(self.expected, "
                "[*self.readable, *self.missing, *self.damaged])\n",
                "        return []\n",
            ),
        ),
        (units(DECISIONS, SEARCHES),),
        UNSEEN,
    ),
    SeededBug(
        "readable_entry_is_declared_lost",
        "Entries that only the last bookie returned are declared lost.",
        ("9.10",),
        (
            Edit(
                "repair/losses/lost_ranges.py",
                "    readable = [entries for each in answers for entries in each.readable]\n",
                "    readable = [entries for each in answers[:-1] for entries in each.readable]\n",
            ),
        ),
        (units(DECISIONS, SEARCHES),),
        UNSEEN,
    ),
    SeededBug(
        "limbo_counts_as_missing",
        "An entry that a bookie in limbo does not list counts as missing there.",
        ("2.4", "9.10"),
        (
            Edit(
                "repair/losses/survey.py",
                "(await self._read_once(found, first, first)).status in NEGATIVES:\n",
                "await self._read_once(found, first, first):\n",
            ),
        ),
        (units(SEARCHES),),
        UNSEEN,
    ),
    SeededBug(
        "returned_bookie_is_not_noticed",
        "A lost bookie that returns during the search is not asked.",
        ("9.10",),
        (
            Edit(
                "repair/losses/acceptance.py",
                "            if await self.has_changed(report):\n                continue\n",
                "",
            ),
        ),
        (units(SEARCHES),),
        UNSEEN,
    ),
    SeededBug(
        "end_moves_with_the_loss",
        "The ledger ends before the first lost entry once the loss is accepted.",
        ("1.5", "9.9"),
        (
            Edit(
                "metadata/ledgers/ledger_metadata.py",
                "        return replace(self, lost=lost, update_token=token)\n",
                "        end = EntryId(lost[0].first_entry_id - 1)\n"
                "        return replace(self, last_entry_id=end, update_token=token)\n",
            ),
        ),
        (units("tests/unit/metadata/ledgers/test_lost_entries.py", f"{SCENARIOS}"),),
        UNSEEN,
    ),
    SeededBug(
        "lost_entry_does_not_exist",
        "A read of a lost entry reports that there is no such entry.",
        ("8.6",),
        (
            Edit(
                "ledger_client/reading/range_reader.py",
                "            raise EntryLostError("
                "ledger_id=self._ledger.ledger_id, entry_id=entry_id, lost=lost)\n",
                "            raise self._error(p.ReportMissing(), entry_id)\n",
            ),
        ),
        (units(SCENARIOS),),
        UNSEEN,
    ),
    SeededBug(
        "gap_is_the_end",
        "A ledger whose recovery is undecided ends at the first gap, before entries that are left.",
        ("9.11",),
        (
            Edit(
                "repair/losses/lost_ranges.py",
                "        if negatives >= negatives_needed(quorum):\n",
                "        if negatives:\n",
            ),
        ),
        (units(DECISIONS, ENDS),),
        UNSEEN,
    ),
    SeededBug(
        "silent_member_is_given_up",
        "A member that does not answer is given up although the operator did not say so.",
        ("9.11",),
        (
            Edit(
                "repair/losses/undecided_end.py",
                "        if not silent:\n",
                "        if silent is not None:\n",
            ),
        ),
        (units(ENDS),),
        UNSEEN,
    ),
    SeededBug(
        "lost_positions_are_never_replaced",
        "A position of which all entries are lost waits for a copy that nothing can make.",
        ("9.7", "9.9"),
        (
            Edit(
                "ledger_client/protocol/copy.py",
                "            for low, high in entries_left(lost, first, end):\n",
                "            for low, high in ((first, end),):\n",
            ),
        ),
        (units(f"{STORIES}::test_an_accepted_loss_ends_the_class_lost_and_names_no_lost_bookie"),),
        UNSEEN,
    ),
)

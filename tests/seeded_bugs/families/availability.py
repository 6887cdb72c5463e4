"""Seeded bugs that end a writer, or fail a creation, without need; none of them loses an entry.

Leaves judging errors to `tests.simulation.checkers.availability`.

Source: protocol rules 4.3, 5.1 and 5.5.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, hidden_from_model, simulation, units

APPEND = "ledger_client/protocol/append.py"
PLACEMENT = "ledger_client/bookies/placement.py"
NO_SAFETY = hidden_from_model("a writer that ends with an error breaks no rule of safety")

BUGS = (
    SeededBug(
        "full_bookie_ends_the_writer",
        "A bookie that is read-only ends the writer instead of being replaced.",
        ("4.3", "5.1"),
        (
            Edit(
                APPEND,
                "        if status is Status.BAD_REQUEST and"
                " self._refused_batches.count(first, bookie_id):\n",
                "        if status is Status.READ_ONLY or status is Status.BAD_REQUEST and"
                " self._refused_batches.count(first, bookie_id):\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/writing/test_writer.py"
                "::test_a_read_only_bookie_is_replaced"
            ),
            simulation(),
        ),
        (NO_SAFETY,),
    ),
    SeededBug(
        "quarantine_is_a_prohibition",
        "A bookie that failed a minute ago is never used, not even when there is no other one.",
        ("5.1", "5.5"),
        (
            Edit(
                PLACEMENT,
                "            if isinstance(chosen, Shortage) and len(avoided) > len(excluded):\n"
                "                chosen = choose(excluded)\n",
                "",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/bookies/test_placement.py"
                "::test_quarantined_bookies_are_the_last_resort"
            ),
            simulation(),
        ),
        (NO_SAFETY,),
    ),
)

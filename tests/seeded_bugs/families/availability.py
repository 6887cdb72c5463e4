"""Seeded bugs that end a writer, or fail a creation, without need; none of them loses an entry.

Leaves judging errors to `tests.simulation.checkers.availability`.

Source: protocol rules 4.3, 5.1 and 5.5.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

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
        ),
        (
            NO_SAFETY,
            hidden_from_simulation(
                "the fault before a quarantine explains the error almost as long as it lasts; a"
                " longer one needs several failures of one bookie, and a restart ends it"
            ),
        ),
    ),
    SeededBug(
        "append_waits_without_end",
        "An append that no bookie answers has no deadline.",
        ("4.6", "5.7"),
        (
            Edit(
                "ledger_client/writing/writer_watch.py",
                "now - oldest > config.append_deadline_s:",
                "now - oldest > 1e9:",
            ),
            Edit(
                "ledger_client/bookies/connection.py",
                "            if now - sent_at < timeout_s:\n",
                "            if now - sent_at < 1e9 * timeout_s:\n",
            ),
            Edit(
                "ledger_client/bookies/connection.py",
                "            if now - self._pinged_at >= PING_TIMEOUT_S:\n",
                "            if now - self._pinged_at >= 1e9 * PING_TIMEOUT_S:\n",
            ),
        ),
        (units("tests/unit/ledger_client/writing/test_append_deadline.py"), simulation()),
        (NO_SAFETY,),
        masked_by="a bookie that answers nothing is given up, and then replaced",
    ),
    SeededBug(
        "write_back_in_one_timeout",
        "A bookie must answer all write-backs of a recovery, which are sent at once, within the"
        " timeout of one add.",
        ("7.4",),
        (
            Edit(
                "ledger_client/bookies/connection.py",
                "        answers = now - self._recovery_answered_at < timeout_s\n",
                "        answers = False\n",
            ),
        ),
        (units("tests/unit/ledger_client/bookies/test_add_deadlines.py"),),
        (
            NO_SAFETY,
            hidden_from_simulation(
                "a ledger needs thousands of separate entries after its LAC, a slow disk, and the"
                " shortest timeout: seed 17 of one commit had all of them"
            ),
        ),
    ),
)

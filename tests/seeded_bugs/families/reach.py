"""Seeded bugs of the classes for which the simulation has extensions.

Leaves the others to the families of their areas. Each is out of sight of the runs without the
extension (docs/simulation.md, "Reach").

Source: protocol rules 5.7, 7.3, 8.3.
"""

from tests.seeded_bugs.seeded_bug import (
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

READ = "ledger_client/protocol/recovery_read.py"
READ_TESTS = units("tests/unit/ledger_client/protocol/test_recovery_read.py")
TOO_SMALL = hidden_from_model("a ledger of the model has a few small entries")

BUGS = (
    SeededBug(
        "end_of_an_answer_is_a_negative",
        "A recovery counts an answer that ends early, at its size limit, as a negative for the next"
        " entry.",
        ("7.3",),
        (
            Edit(
                READ,
                "            answer = _PointAnswer(event.first_entry_id, Status.UNKNOWN,"
                ' "answered nothing")\n',
                "            answer = _PointAnswer(event.first_entry_id, Status.UNKNOWN,"
                ' "answered nothing")\n'
                "        elif event.runs:\n"
                "            answer = _PointAnswer("
                'event.next_entry_id, Status.NO_SUCH_ENTRY, "")\n',
            ),
        ),
        (READ_TESTS, simulation("metadata")),
        (TOO_SMALL,),
    ),
    SeededBug(
        "full_chunk_is_the_end",
        "A recovery that finds a chunk of 1,024 entries complete takes its end for the end of the"
        " ledger.",
        ("7.3",),
        (
            Edit(
                READ,
                "        if chunk is None:\n            return None\n        prefers_found",
                "        if chunk is None:\n"
                "            is_wide = self._chunk_entries() == CHUNK_ENTRIES\n"
                "            is_read = is_wide and self._taken > self.start\n"
                "            return Ended(self._next_chunk) if is_read else None\n"
                "        prefers_found",
            ),
        ),
        (READ_TESTS, simulation("in_sync")),
        (TOO_SMALL,),
    ),
    SeededBug(
        "own_stop_is_silence",
        "A client that was stopped with unread answers suspects the bookies that gave them.",
        ("5.7",),
        (
            Edit(
                "ledger_client/writing/watchdog.py",
                "        if now - self._due_at < WATCH_PERIOD_S:\n"
                "            self._act_on_silence(now)\n",
                "        self._act_on_silence(now)\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/writing/test_watchdog_silence.py"
                "::test_a_pause_of_this_process_is_not_silence_of_a_bookie"
            ),
        ),
        (
            SHELL_ONLY,
            hidden_from_simulation(
                "to replace a sound bookie is no error, and a stop of the client explains the"
                " errors after it"
            ),
        ),
    ),
)

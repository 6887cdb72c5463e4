"""Seeded bugs of clients with hundreds of open ledgers: what is spread over time does not go on.

Leaves what one writer does to `append` and `in_sync`.

Source: protocol rules 5.6 and 11.3; metadata design, "Storms".
"""

from tests.seeded_bugs.seeded_bug import SHELL_ONLY, Edit, SeededBug, simulation, units

UNITS = "tests/unit/ledger_client/writing"

BUGS = (
    SeededBug(
        "turns_end_without_the_next",
        "A ledger whose turn ends does not begin the next one: other ledgers that wait for a turn"
        " neither replace a member nor take one back.",
        ("5.6", "11.3"),
        (
            Edit(
                "ledger_client/writing/ledger_turns.py",
                "        self._under_way -= 1\n        self._begin_next()\n",
                "        self._under_way -= 1\n",
            ),
        ),
        (units(f"{UNITS}/test_ledger_turns.py"), simulation("in_sync")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "round_ends_with_its_slice",
        "A round of calls stops at the end of its first slice: the ledgers after it neither learn"
        " that a bookie left nor are checked.",
        ("5.6", "11.3"),
        (
            Edit(
                "ledger_client/writing/slices.py",
                "            if self._calls or self._rounds:\n",
                "            if self._calls:\n",
            ),
        ),
        (units(f"{UNITS}/test_slices.py"), simulation("in_sync")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "refresh_loses_a_bookie",
        "A caller that gives up a refresh of the directory takes the reads that were due with it: a"
        " bookie that has joined stays unknown to the client.",
        ("5.1", "5.5"),
        (
            Edit(
                "metadata/store/child_values.py",
                "except BaseException:  # also a caller of `refresh` that waits no longer\n",
                "except MetadataError:\n",
            ),
        ),
        (units("tests/unit/metadata/store/test_child_values.py"), simulation()),
        (SHELL_ONLY,),
    ),
)

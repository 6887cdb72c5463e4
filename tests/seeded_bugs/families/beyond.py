"""Seeded bugs that only show when more copies are lost than a ledger tolerates.

Every answer must then be an honest error. Within the budget some replica always has the entry, or
cannot be reached; these bugs need replicas that all answer that they may have lost it.

Leaves unclean recoveries to `in_sync_copies`.

Source: protocol rules 2.4, 3.2 and 8.2.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    beyond_budget,
    hidden_from_model,
    units,
)

THEME = "damage"
READ = "ledger_client/protocol/read.py"
READ_TESTS = "tests/unit/ledger_client/protocol/test_read_protocol.py"
NO_READERS = hidden_from_model("the model has no readers that are not recoveries")

UNSURE_IS_MISSING = Edit(
    READ,
    "        if not unsure:\n            return self._end(ReportMissing())\n",
    "        said = [a for a in unsure if isinstance(a, ReplicaAnswered)]\n"
    "        if len(said) == len(unsure) and all(a.status is Status.UNKNOWN for a in said):\n"
    "            return self._end(ReportMissing())\n",
)

BUGS = (
    SeededBug(
        "unsure_everywhere_is_missing",
        "A read of which every replica answers that it may have lost the entry ends with"
        ' "no such entry".',
        ("3.2", "8.2"),
        (UNSURE_IS_MISSING,),
        (units(READ_TESTS), beyond_budget(THEME)),
        (NO_READERS,),
    ),
    SeededBug(
        "read_ends_where_all_are_unsure",
        "A read ends without an error at the first entry that every replica may have lost: its"
        " result is shorter than the ledger.",
        ("8.2",),
        (
            UNSURE_IS_MISSING,
            Edit(
                "ledger_client/reading/reader.py",
                "            async for batch in batches:\n"
                "                self._check_open()\n"
                "                yield self._opened(batch)\n"
                "\n"
                "    def _opened(",
                "            try:\n"
                "                async for batch in batches:\n"
                "                    self._check_open()\n"
                "                    yield self._opened(batch)\n"
                "            except EntryNotFoundError:\n"
                "                return\n"
                "\n"
                "    def _opened(",
            ),
        ),
        (units(READ_TESTS), beyond_budget(THEME)),
        (NO_READERS,),
    ),
)

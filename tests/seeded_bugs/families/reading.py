"""Seeded bugs of readers: entries seen too early, too late, damaged or not at all.

Leaves what recovery reads to `recovery`. Those beyond the budget need replicas that all answer that
they may have lost an entry.

Source: protocol section 8, rules 2.4 and 3.2; BookKeeper #2748, #1126, #3917, #1527.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, beyond_budget, simulation

FOLLOWED = "ledger_client/reading/followed_ledger.py"
READ = "ledger_client/protocol/read.py"
UNSURE_IS_MISSING = Edit(
    READ,
    "        if not unsure:\n            return self._end(ReportMissing())\n",
    "        said = [a for a in unsure if isinstance(a, ReplicaAnswered)]\n"
    "        if len(said) == len(unsure) and all(a.status is Status.UNKNOWN for a in said):\n"
    "            return self._end(ReportMissing())\n",
)

BUGS = (
    SeededBug(
        "reader-shown-entries-beyond-the-lac",
        "A bookie reports its highest entry as the LAC: readers see entries that were never"
        " acknowledged.",
        ("8.1",),
        (
            Edit(
                "bookie/index/replica_state.py",
                "    return NO_ENTRY if state is None else EntryId(state.lac)\n",
                "    highest = NO_ENTRY if state is None else state.highest\n"
                "    return NO_ENTRY if state is None else EntryId(max(state.lac, highest))\n",
            ),
            Edit(
                "bookie/storage/ledger_reads.py",
                "        return LedgerSnapshot(status, EntryId(state.lac), EntryId(state.highest),"
                " state.fenced)\n",
                "        lac = replica_state.advertised_lac(state)\n"
                "        highest = EntryId(state.highest)\n"
                "        return LedgerSnapshot(status, lac, highest, state.fenced)\n",
            ),
        ),
        (simulation(),),
    ),
    SeededBug(
        "lac-goes-back",
        "A reader uses the LAC of the bookie that answered last.",
        ("8.5",),
        (
            Edit(
                FOLLOWED,
                "        if not self.is_closed and lac > self.last_confirmed:\n",
                "        if not self.is_closed and lac != self.last_confirmed:\n",
            ),
        ),
        (simulation(),),
    ),
    SeededBug(
        "read-ended-by-one-negative",
        'A read ends with "no such entry" as soon as one replica answers that.',
        ("8.2",),
        (
            Edit(
                "ledger_client/protocol/read.py",
                "            case ReplicaAnswered(bookie_id) | ReplicaFailed(bookie_id):\n",
                "            case ReplicaAnswered(status=status) if status in NEGATIVES:\n"
                "                return self._end(ReportMissing())\n"
                "            case ReplicaAnswered(bookie_id) | ReplicaFailed(bookie_id):\n",
            ),
        ),
        (simulation("changes"),),
    ),
    SeededBug(
        "metadata-change-unnoticed-by-a-reader",
        "A tailing reader does not notice changed metadata: it waits for ever for replaced"
        " bookies, or after the end of a closed ledger.",
        ("8.4",),
        (
            Edit(
                FOLLOWED,
                "            self._cancel_watch = self._ledgers.watch("
                "self.ledger_id, self._on_watch)\n",
                "            self._cancel_watch = None\n",
            ),
        ),
        (simulation("changes"),),
    ),
    SeededBug(
        "no-such-entry-where-all-are-unsure",
        "A read of which every replica answers that it may have lost the entry ends with"
        ' "no such entry".',
        ("3.2", "8.2"),
        (UNSURE_IS_MISSING,),
        (beyond_budget("damage"),),
    ),
    SeededBug(
        "read-cut-where-all-are-unsure",
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
        (beyond_budget("damage"),),
    ),
)

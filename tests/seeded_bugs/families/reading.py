"""Seeded bugs of readers: entries seen too early, too late, damaged or not at all.

Leaves what recovery reads to `recovery`.

Source: protocol section 8; BookKeeper #2748, #1126, #3917, #1527.
"""

from tests.seeded_bugs.seeded_bug import (
    STORAGE_CRASHES,
    Edit,
    SeededBug,
    hidden_from_model,
    simulation,
    units,
)

FOLLOWED = "ledger_client/reading/followed_ledger.py"
READER_TESTS = "tests/unit/ledger_client/reading/test_reader.py"
STORAGE_TESTS = "tests/unit/bookie/storage/test_storage.py"
NO_READERS = hidden_from_model("the model has no readers that are not recoveries")

BUGS = (
    SeededBug(
        "reader_beyond_the_lac",
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
        (
            units(STORAGE_CRASHES, READER_TESTS),
            simulation(),
        ),
        (NO_READERS,),
    ),
    SeededBug(
        "lac_goes_back",
        "A reader uses the LAC of the bookie that answered last.",
        ("8.5",),
        (
            Edit(
                FOLLOWED,
                "        if not self.is_closed and lac > self.last_confirmed:\n",
                "        if not self.is_closed and lac != self.last_confirmed:\n",
            ),
        ),
        (units(f"{READER_TESTS}::test_the_lac_never_goes_back"), simulation()),
        (NO_READERS,),
    ),
    SeededBug(
        "one_negative_ends_a_read",
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
        (
            units(
                "tests/unit/ledger_client/protocol/test_read_protocol.py",
                f"{READER_TESTS}::test_missing_only_when_all_say_so",
            ),
            simulation("changes"),
        ),
        (NO_READERS,),
    ),
    SeededBug(
        "damage_is_delivered",
        "Neither the bookie nor the client checks the digest of the entries read.",
        ("7.3", "8.2"),
        (
            Edit(
                "bookie/storage/reading.py",
                "        batch.verify_crc()\n        stop",
                "        stop",
            ),
            Edit(
                "ledger_client/digest.py",
                "    batch.verify_crc()\n    if keys.mac_key is not None:\n",
                "    if keys.mac_key is not None:\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/test_digest.py",
                "tests/unit/bookie/storage/test_storage_upkeep.py::"
                "test_a_damaged_copy_is_unknown_and_replaced_by_a_repetition",
            ),
            simulation("damage"),
        ),
        (NO_READERS,),
        masked_by="2.4: a bookie checks entries that it reads from its disk, and 8.2: so does the"
        " client",
    ),
    SeededBug(
        "idle_writer_keeps_its_lac",
        "A writer without new entries does not send its LAC: readers never see the last entry.",
        ("8.4",),
        (
            Edit(
                "ledger_client/writing/writer_watch.py",
                "        elif self._has_unsent_lac():\n",
                "        elif self._has_unsent_lac() and self._shell.protocol.parked:\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/writing/test_writer.py::test_an_idle_writer_sends_its_lac",
                "tests/unit/ledger_client/writing/test_idle_lac.py",
            ),
            simulation("changes"),
        ),
        (NO_READERS,),
    ),
    SeededBug(
        "metadata_watch_lost",
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
        (
            units(
                f"{READER_TESTS}::test_a_tail_follows_until_the_ledger_is_closed",
                f"{READER_TESTS}::test_a_tail_moves_over_bookies_and_fragments",
            ),
            simulation("changes"),
        ),
        (NO_READERS,),
    ),
    SeededBug(
        "riding_entries_beyond_the_lac",
        "A tailing reader shows all entries of a batch of which only the first ones are confirmed.",
        ("8.1",),
        (
            Edit(
                "ledger_client/reading/verified_entries.py",
                "    following = EntryId(min(expected, last_entry_id + 1))\n",
                "    following = expected\n",
            ),
            Edit(
                "ledger_client/reading/tailing.py",
                "            if (last := min(lac, view.header.last_entry_id)) > lac_before\n",
                "            if (last := view.header.last_entry_id) > lac_before\n",
            ),
            Edit(
                "bookie/storage/reading.py",
                "        EntryId(max(first, header.first_entry_id)),"
                " EntryId(min(last, header.last_entry_id))\n",
                "        EntryId(max(first, header.first_entry_id)), header.last_entry_id\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/reading/test_read_edges.py::"
                "test_a_tail_stops_at_a_lac_within_a_batch",
                STORAGE_TESTS + "::test_single_entries_and_cuts",
            ),
            simulation(),
        ),
        (NO_READERS,),
        masked_by="8.1: the bookie cuts its answer at its LAC",
    ),
)

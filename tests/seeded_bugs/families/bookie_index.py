"""Seeded bugs of a bookie's index: lost entries, and wrong answers for them.

Leaves moving what it points to to `cleaning`.

Source: protocol rules 2.4, 4.3; storage design, "Index"; BookKeeper #2908, #3329, #4105, #1527.
"""

from tests.seeded_bugs.seeded_bug import (
    DISK_ONLY,
    STORAGE_CRASHES,
    Edit,
    SeededBug,
    hidden_from_simulation,
    simulation,
    units,
)

INDEX = "bookie/index/index.py"
INDEX_TESTS = "tests/unit/bookie/index/test_index.py"
READING = "bookie/storage/reading.py"
UPKEEP = "tests/unit/bookie/storage/test_storage_upkeep.py"

BUGS = (
    SeededBug(
        "corruption_is_no_such_entry",
        'A damaged or missing record on the disk is answered with "no such entry".',
        ("2.4",),
        (
            Edit(
                READING,
                "            except (DamagedRecordError, DiskFailedError, BatchError):\n"
                "                return Status.UNKNOWN\n",
                "            except (DamagedRecordError, DiskFailedError, BatchError):\n"
                "                return Status.NO_SUCH_ENTRY\n",
            ),
        ),
        (
            units(f"{UPKEEP}::test_a_damaged_copy_is_unknown_and_replaced_by_a_repetition"),
            simulation("damage"),
        ),
        (DISK_ONLY,),
    ),
    SeededBug(
        "lost_run_is_no_such_entry",
        'An index that has lost runs still answers "no such entry".',
        ("2.4",),
        (
            Edit(
                READING,
                "        if entry_id <= known_to:\n            return self._negative(state)\n",
                "        if entry_id <= max(known_to, entry_id):\n"
                "            return self._negative(state)\n",
            ),
        ),
        (
            units(f"{UPKEEP}::test_a_ledger_whose_runs_went_missing_is_unknown_and_then_rebuilt"),
            simulation("damage"),
        ),
        (DISK_ONLY,),
    ),
    SeededBug(
        "hidden_state_is_no_such_ledger",
        "A ledger whose stored state a look-up misses, because a branch page of the index is"
        " damaged, counts as never stored.",
        ("2.4",),
        (
            Edit(
                INDEX,
                "            if value is None and was_known and ledger_id in self._ids:\n"
                "                raise _state_not_found(ledger_id)\n",
                "            if value is None and was_known and ledger_id in self._ids:\n"
                "                continue\n",
            ),
        ),
        (units("tests/unit/bookie/storage/test_unfindable_keys.py"),),
        (
            DISK_ONLY,
            hidden_from_simulation("its index is kept in memory, without pages"),
        ),
    ),
    SeededBug(
        "index_out_of_order_opened",
        "A start uses an index whose keys are out of order, and so adds keys to it where no later"
        " search finds them.",
        ("2.4",),
        (
            Edit(
                "bookie/storage/opening.py",
                "    await _check_keys(store, len(check.ids) + len(check.damaged), pair_count)\n",
                "",
            ),
        ),
        (units("tests/unit/bookie/storage/test_unfindable_keys.py"),),
        (
            DISK_ONLY,
            hidden_from_simulation("its index is kept in memory, without pages"),
        ),
    ),
    SeededBug(
        "mark_ahead_of_the_index",
        "A checkpoint stores its mark before the runs below it: a crash between the two loses"
        " them.",
        ("4.3",),
        (
            Edit(
                INDEX,
                "        frozen, mark = self._frozen, self._frozen_mark_lsn\n",
                "        frozen, mark = self._frozen, self._frozen_mark_lsn\n"
                "        await self._store.update(lambda t: _change_meta(t, mark_lsn=mark))\n",
            ),
        ),
        (units(STORAGE_CRASHES), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "mark_of_a_repeated_checkpoint",
        "A checkpoint that is repeated after a failure advances its mark to the current end, but"
        " moves only the runs of the failed one.",
        ("4.3",),
        (
            Edit(
                INDEX,
                "            self._frozen_mark_lsn = mark_lsn\n",
                "        self._frozen_mark_lsn = mark_lsn\n        if not self.moving_count:\n",
            ),
        ),
        (units(INDEX_TESTS, STORAGE_CRASHES), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "entries_hidden_during_a_checkpoint",
        "Entries that a checkpoint is moving are found neither in memory nor in the store until it"
        " ends.",
        ("4.3",),
        (
            Edit(
                INDEX,
                "        lower = index_runs.find_runs(self._frozen.get(ledger_id, ()),"
                " first, last)\n",
                "        lower = index_runs.find_runs([], first, last)\n",
            ),
        ),
        (units(INDEX_TESTS, STORAGE_CRASHES), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "lac_lost_at_a_checkpoint",
        "A ledger's LAC does not reach the index: after a restart the bookie reports none.",
        ("8.4",),
        (
            Edit(
                "bookie/index/replica_state.py",
                "        return _seal(self.ledger_id, flags, self.lac, highest, self.length,"
                " self.master_key)\n",
                "        lac = NO_ENTRY\n"
                "        return _seal(self.ledger_id, flags, lac, highest, self.length,"
                " self.master_key)\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie/index/test_replica_state.py::test_a_stored_state_is_read_back"
            ),
            simulation("crashes"),
        ),
        (DISK_ONLY,),
    ),
)

"""Ways to be wrong when data is removed: cleaned segments, deleted ledgers, collection.

Leaves the index and the log themselves to `bookie_index` and `bookie_log`.

Source: protocol rules 10.1, 10.2; reliability D20; BookKeeper #3466, #870, #4462, #4668, #4607.
"""

from tests.seeded_bugs.seeded_bug import (
    DISK_ONLY,
    STORAGE_CRASHES,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

CLEANER = "bookie/cleaner.py"
COLLECTOR = "bookie/collector.py"
COLLECTOR_TESTS = "tests/unit/bookie_server/test_collector.py"
EDGES = "tests/unit/bookie/test_storage_edges.py"
UPKEEP = "tests/unit/bookie/test_storage_upkeep.py"
NOT_COLLECTED = hidden_from_model("the model deletes nothing")

BUGS = (
    SeededBug(
        "unlinked_before_the_moves_are_durable",
        "A cleaned segment is unlinked while the index is still being told where its entries went.",
        ("4.3",),
        (
            Edit(
                CLEANER,
                "            unmoved |= await self._index.move("
                "rewrite.moves[start : start + limit])\n",
                "            moving = self._index.move(rewrite.moves[start : start + limit])\n"
                "            self._moving = asyncio.get_running_loop().create_task(moving)\n",
            ),
        ),
        (units(STORAGE_CRASHES), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "unlinked_with_runs_that_were_not_moved",
        "A cleaned segment goes although a run of it was cut back meanwhile and stayed behind.",
        ("4.3",),
        (
            Edit(
                CLEANER,
                "            if number not in unmoved and not"
                " self._segments.by_number[number].is_damaged\n",
                "            if not self._segments.by_number[number].is_damaged\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie/test_cleaning_races.py"
                "::test_a_run_that_a_checkpoint_cuts_back_while_it_is_cleaned_is_kept"
            ),
            simulation("crashes"),
        ),
        (DISK_ONLY,),
    ),
    SeededBug(
        "unlinked_before_the_new_name_is_durable",
        "A cleaned segment is unlinked although the name of the one that replaces it may be lost.",
        ("4.3",),
        (
            Edit(
                CLEANER,
                "        await self._disk.rename(unfinished, segment.name)\n"
                "        await self._disk.sync_directory(DIRECTORY)\n",
                "        await self._disk.rename(unfinished, segment.name)\n",
            ),
        ),
        (units(STORAGE_CRASHES, EDGES), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "deleted_on_a_stale_listing",
        "A ledger that a stale read does not show is deleted without a second, fresh look.",
        ("10.1",),
        (
            Edit(
                COLLECTOR,
                "            if not may_remove(await self._read(ledger_id, fresh=True),"
                " bookie_id):\n",
                "            if not may_remove(await self._read(ledger_id, fresh=False),"
                " bookie_id):\n",
            ),
        ),
        (simulation("metadata"),),
        (NOT_COLLECTED,),
    ),
    SeededBug(
        "collected_while_a_recovery_writes",
        "A bookie that the metadata does not name drops a ledger that is open or in recovery,"
        " although a writer or a recovery may be about to name it.",
        ("10.1",),
        (
            Edit(
                COLLECTOR,
                "    return metadata.state is LedgerState.CLOSED and not"
                " metadata.names(bookie_id)\n",
                "    return not metadata.names(bookie_id)\n",
            ),
        ),
        (units(COLLECTOR_TESTS), simulation("recoveries")),
        (NOT_COLLECTED,),
    ),
    SeededBug(
        "adds_stored_while_a_ledger_is_deleted",
        "Adds are stored between the look at the metadata and the deletion that follows from it.",
        ("10.1",),
        (
            Edit(
                COLLECTOR,
                "        with self._context.hold(ledger_id):\n",
                "        with contextlib.nullcontext():\n",
            ),
            Edit(COLLECTOR, "import asyncio\n", "import asyncio\nimport contextlib\n"),
        ),
        (
            units(
                f"{COLLECTOR_TESTS}::test_nothing_is_stored_between_the_second_read_and_the_removal"
            ),
        ),
        (
            NOT_COLLECTED,
            hidden_from_simulation(
                "without repair nothing writes to a ledger that is gone, or closed elsewhere"
            ),
        ),
    ),
    SeededBug(
        "tombstone_missing",
        "A bookie forgets that a ledger was deleted: a paused writer brings it back.",
        ("10.2",),
        (
            Edit(
                "bookie/storage.py",
                "        if ledger_id in self._ledgers.deleted or ledger_id in self._deleting:\n",
                "        if ledger_id in self._deleting:\n",
            ),
        ),
        (units(f"{UPKEEP}::test_a_deleted_ledger_never_comes_back", COLLECTOR_TESTS), simulation()),
        (NOT_COLLECTED,),
    ),
)

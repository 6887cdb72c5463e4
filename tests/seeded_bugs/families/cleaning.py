"""Seeded bugs of the removal of data: cleaned segments, deleted ledgers, collection.

Leaves the index and the log themselves to `bookie_index` and `bookie_log`.

Source: protocol rules 10.1, 10.2; reliability design, D20; BookKeeper #3466, #870, #4462, #4668,
#4607.
"""

from tests.seeded_bugs.seeded_bug import (
    DISK_ONLY,
    SCENARIOS,
    STORAGE_CRASHES,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

CLEANER = "bookie/storage/cleaner.py"
CLEANING_POWER = "tests/unit/bookie/storage/test_cleaning_power.py"
COLLECTOR = "bookie/server/collector.py"
COLLECTOR_TESTS = "tests/unit/bookie/server/test_collector.py"
FULL_DISK = "tests/unit/bookie/storage/test_full_disk.py"
UPKEEP = "tests/unit/bookie/storage/test_storage_upkeep.py"
NEVER_FULL = hidden_from_simulation("a simulated disk never fills up")
HORIZON = "tests/unit/bookie/storage/test_horizon.py"
STANDING = "tests/unit/bookie/storage/test_standing.py"
NOT_MOVED = hidden_from_simulation("without repair no ledger moves away from a bookie")
NOT_TRIMMED = hidden_from_simulation("its clients seldom send adds to ledgers that they deleted")
UNKNOWN_TO_A_LEADER = "test_a_ledger_that_a_replaced_leader_does_not_know_stays"
NOT_BETWEEN = hidden_from_simulation(
    "a session seldom ends between a ledger's creation and its first add: in 3 of 2,000 seeds"
)
NOT_COLLECTED = hidden_from_model("the model deletes no ledgers")

BUGS = (
    SeededBug(
        "unlinked_before_the_moves_are_durable",
        "A cleaned segment is unlinked before the index has stored the new places of its entries.",
        ("4.3",),
        (
            Edit(
                CLEANER,
                "            unmoved |= await self._index.move(moves)\n",
                "            moving = self._index.move(moves)\n"
                "            self._moving = asyncio.get_running_loop().create_task(moving)\n",
            ),
        ),
        (units("tests/unit/bookie/storage/test_cleaning_races.py"), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "unlinked_with_runs_that_were_not_moved",
        "A cleaned segment is unlinked although one of its runs was shortened during the cleaning"
        " and was not moved.",
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
                "tests/unit/bookie/storage/test_cleaning_races.py"
                "::test_a_run_that_a_checkpoint_cuts_back_while_it_is_cleaned_is_kept"
            ),
            simulation("crashes"),
        ),
        (DISK_ONLY,),
    ),
    SeededBug(
        "unlinked_before_the_new_name_is_durable",
        "A cleaned segment is unlinked although the name of its replacement may be lost.",
        ("4.3",),
        (
            Edit(
                CLEANER,
                "        await self._disk.rename(unfinished, segment.name)\n"
                "        await self._disk.sync_directory(DIRECTORY)\n",
                "        await self._disk.rename(unfinished, segment.name)\n",
            ),
        ),
        (units(CLEANING_POWER), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "deleted_on_a_stale_listing",
        "A ledger that is absent from a stale read is deleted without a second, agreed read.",
        ("10.1",),
        (
            Edit(
                COLLECTOR,
                "            metadata = await self._read(ledger_id, agreed=True)\n",
                "            metadata = await self._read(ledger_id, agreed=False)\n",
            ),
        ),
        (units(f"{COLLECTOR_TESTS}::{UNKNOWN_TO_A_LEADER}"), simulation("metadata")),
        (NOT_COLLECTED,),
    ),
    SeededBug(
        "deleted_on_the_word_of_a_replaced_leader",
        "A ledger is deleted after a second read that a leader of the metadata service answers"
        " which was replaced, and does not know the ledger.",
        ("1.6", "10.1"),
        (
            Edit(
                COLLECTOR,
                "            metadata, _ = await self._ledgers.get(ledger_id, agreed=agreed)\n",
                "            metadata, _ = await self._ledgers.get(ledger_id, fresh=agreed)\n",
            ),
        ),
        (units(f"{COLLECTOR_TESTS}::{UNKNOWN_TO_A_LEADER}"),),
        (
            NOT_COLLECTED,
            hidden_from_simulation("no simulated leader of the metadata service is replaced"),
        ),
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
        "Adds are stored between the read of the metadata and the deletion that follows from it.",
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
                "without repair no process writes to a ledger that is deleted, or closed elsewhere"
            ),
        ),
    ),
    SeededBug(
        "tombstone_missing",
        "A bookie does not record that a ledger was deleted: a paused writer creates it again.",
        ("10.2",),
        (
            Edit(
                "bookie/storage/admission.py",
                "        if ledger_id in self.deleting or (state is None and"
                " self._ledgers.is_deleted(ledger_id)):\n",
                "        if ledger_id in self.deleting:\n",
            ),
        ),
        (units(f"{UPKEEP}::test_a_deleted_ledger_never_comes_back", COLLECTOR_TESTS), simulation()),
        (NOT_COLLECTED,),
    ),
    SeededBug(
        "emergency_never_rewrites",
        "On a full disk only dead segments are dropped: a fragmented bookie stays read-only.",
        ("4.3",),
        (
            Edit(
                "bookie/storage/cleaning.py",
                "        if needed_bytes > room.free_bytes:\n",
                "        if room.is_full or needed_bytes > room.free_bytes:\n",
            ),
        ),
        (units(FULL_DISK),),
        (DISK_ONLY, NEVER_FULL),
    ),
    SeededBug(
        "recovery_adds_eat_the_reserve",
        "Recovery adds are stored on a full disk until there is no room for fences and deletions.",
        ("4.3",),
        (
            Edit(
                "bookie/storage/admission.py",
                "        if recovery and not self._switch.takes_recovery_adds:\n",
                "        if recovery and self.is_closing:\n",
            ),
        ),
        (units(FULL_DISK),),
        (DISK_ONLY, NEVER_FULL),
    ),
    SeededBug(
        "live_bytes_lost_at_a_crash",
        "A deletion removes runs in a transaction, but updates the segment's live bytes only in"
        " memory: after a crash the segment counts as alive.",
        ("10.2",),
        (
            Edit(
                "bookie/index/stored_runs.py",
                "    add_live_bytes(transaction, {number: -size for number, size in"
                " freed.items()})\n",
                "",
            ),
        ),
        (units("tests/unit/bookie/storage/test_live_bytes.py"),),
        (
            DISK_ONLY,
            hidden_from_simulation("garbage that is collected late violates no safety rule"),
        ),
    ),
    SeededBug(
        "moved_away_loses_its_fence",
        "A ledger that moved away is treated as a new one: a late add of its writer is stored.",
        ("10.1",),
        (
            Edit(
                "bookie/index/replica_state.py",
                "    state.fenced = state.is_fence_durable = True\n"
                "    state.limbo = state.released = True\n",
                "    state.limbo = state.released = True\n",
            ),
        ),
        (units("tests/unit/bookie/storage/test_released.py"),),
        (NOT_COLLECTED, NOT_MOVED),
    ),
    SeededBug(
        "horizon_not_raised_with_the_trim",
        "Tombstones are trimmed, but the horizon above them is kept only in memory.",
        ("10.3",),
        (
            Edit(
                "bookie/index/horizon_pages.py",
                "            horizon = max(horizon, ledger_id)\n",
                "",
            ),
        ),
        (units(HORIZON, STORAGE_CRASHES),),
        (NOT_COLLECTED, NOT_TRIMMED),
    ),
    SeededBug(
        "trimmed_tombstone_admits_adds",
        "An ordinary add to an unknown ledger at or below the horizon is stored without a read of"
        " its metadata.",
        ("10.3",),
        (
            Edit(
                "bookie/storage/admission.py",
                "        if ledger_id > self._ledgers.horizon or ledger_id in"
                " self._ledgers.states:\n",
                "        if ledger_id >= 0:\n",
            ),
        ),
        (units(HORIZON, STORAGE_CRASHES, SCENARIOS),),
        (NOT_COLLECTED, NOT_TRIMMED),
    ),
    SeededBug(
        "stale_read_admits_adds",
        "The read that admits an add at or below the horizon may be older than the deletion.",
        ("10.3",),
        (
            Edit(
                "bookie/storage/standing.py",
                "ledgers.get(ledger_id, fresh=not is_agreed, agreed=is_agreed)\n",
                "ledgers.get(ledger_id, agreed=is_agreed)\n",
            ),
        ),
        (units(STANDING, SCENARIOS),),
        (NOT_COLLECTED, NOT_TRIMMED),
    ),
    SeededBug(
        "standing_read_not_repeated",
        "The read that admits an add at or below the horizon fails as soon as the session ends:"
        " the bookie answers UNKNOWN, and is replaced.",
        ("10.3",),
        (
            Edit(
                "bookie/storage/standing.py",
                "                await asyncio.sleep(backoff.next_s())\n",
                "                raise\n",
            ),
        ),
        (units(STANDING),),
        (NOT_COLLECTED, NOT_BETWEEN),
    ),
)

"""Seeded bugs of a bookie's log: early acknowledgements, changed bytes, wrong replay of damage.

Leaves the index that points into it to `bookie_index`.

Source: protocol rules 2.4, 4.3; reliability design, D1-D4, D7, D14; BookKeeper #3329, #4740.
"""

from tests.seeded_bugs.seeded_bug import (
    DISK_ONLY,
    LOG_CRASHES,
    STORAGE_CRASHES,
    Edit,
    SeededBug,
    hidden_from_simulation,
    simulation,
    units,
)

LOG = "bookie/log/log.py"
SCAN = "bookie/log/recovery_scan.py"
DAMAGE = "tests/unit/bookie/log/test_replay_damage.py"
BODIES = "tests/unit/bookie/wire/test_bodies.py"
UPKEEP = "tests/unit/bookie/storage/test_storage_upkeep.py"
HEALTH = "tests/unit/bookie/storage/test_disk_health.py"

BUGS = (
    SeededBug(
        "acknowledged_before_the_sync",
        "Adds are answered when they are about to be written, not when they are durable.",
        ("4.3",),
        (
            Edit(
                LOG,
                "        try:\n            await self._file.commit(segment.size, buffers)\n",
                "        if group[0].kind not in (RecordKind.HEAD, RecordKind.FOOTER):\n"
                "            self._answer(group, None)\n"
                "        try:\n            await self._file.commit(segment.size, buffers)\n",
            ),
            Edit(
                LOG,
                "                self._committing = []\n"
                "                self._answer(group, None)\n",
                "                self._committing = []\n",
            ),
            Edit(
                LOG,
                "                await self._refuse(group, error)\n",
                "                await self._refuse([], error)\n",
            ),
            Edit(
                LOG,
                "        group, self._committing = self._committing, []\n"
                "        await self._refuse(group, self.failure)\n",
                "        self._committing = []\n        await self._refuse([], self.failure)\n",
            ),
        ),
        (units(STORAGE_CRASHES, LOG_CRASHES), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "failed_sync_acknowledged",
        "A group whose sync failed is answered as stored, and the log continues.",
        ("4.3",),
        (
            Edit(
                LOG,
                "            else:\n                self._committing = []\n"
                "                self._answer(group, None)\n",
                "            except DiskFailedError:\n                self._committing = []\n"
                "                self._answer(group, None)\n"
                "            else:\n                self._committing = []\n"
                "                self._answer(group, None)\n",
            ),
        ),
        (units(f"{UPKEEP}::test_a_failed_sync_stops_the_storage_for_ever"), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "a_lent_buffer_is_lent_again",
        "A frame is received into a buffer whose previous frame is still queued for the log: the"
        " synced and acknowledged bytes differ from the received ones.",
        ("4.3",),
        (
            Edit(
                "bookie/wire/bodies.py",
                "    except BufferError:\n        return False\n",
                "    except BufferError:\n        return True\n",
            ),
        ),
        (
            units(f"{BODIES}::test_frame_in_use_is_not_overwritten"),
            simulation("crashes"),
        ),
        (DISK_ONLY,),
    ),
    SeededBug(
        "new_segments_name_not_synced",
        "A segment is written before its name is durable: a power cut removes the complete"
        " segment.",
        ("4.3",),
        (
            Edit(
                "bookie/log/next_segment.py",
                "        await self._disk.sync_directory(DIRECTORY)\n        return",
                "        return",
            ),
        ),
        (units(LOG_CRASHES, STORAGE_CRASHES), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "torn_tail_taken_for_corruption",
        "Damage in the last group, whose sync never ended, counts as a loss of durable data if a"
        " later page of that group reached the disk.",
        ("2.4",),
        (
            Edit(
                SCAN,
                "        if damage.lsn < self._proved_lsn:\n            return False\n",
                "        if damage.lsn < self._proved_lsn or damage.next_lsn is not None:\n"
                "            return False\n",
            ),
        ),
        (units(STORAGE_CRASHES, DAMAGE), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "middle_corruption_truncated",
        "The log is cut at the first damage, without regard to its place and to the records after"
        " it.",
        ("2.4",),
        (
            Edit(
                SCAN,
                "        if damage.lsn < self._proved_lsn:\n            return False\n"
                "        synced_lsn = 0\n",
                "        if damage.lsn >= 0:\n            return True\n        synced_lsn = 0\n",
            ),
        ),
        (units(DAMAGE), simulation("damage")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "older_damage_taken_for_a_torn_tail",
        "Replay does not check whether records after damage were written after a later sync: a"
        " damaged but durable group is cut off with all records after it.",
        ("2.4",),
        (
            Edit(
                SCAN,
                "        return damage.lsn >= synced_lsn\n",
                "        return damage.lsn >= 0 * synced_lsn\n",
            ),
        ),
        (units(DAMAGE), simulation("damage")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "torn_tail_not_cut",
        "A torn tail stays in its file, and the head of the next segment is not checked for the"
        " end of the log before it: the next start treats the tail as corruption.",
        ("2.4",),
        (
            Edit(
                SCAN,
                "            await file.truncate(size)\n",
                "            pass\n",
            ),
            Edit(
                SCAN,
                "        if ended_at is not None and records.segment_of(ended_at)",
                "        if not segment and records.segment_of(ended_at)",
            ),
        ),
        (units(STORAGE_CRASHES, LOG_CRASHES, DAMAGE), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "limbo_answers_no_such_entry",
        'A bookie that lost data answers "no such entry" for entries that it does not find.',
        ("2.4",),
        (
            Edit(
                "bookie/index/replica_state.py",
                "    if is_limbo or (state is not None and state.limbo):\n"
                "        return Status.UNKNOWN\n"
                "    return",
                "    assert is_limbo in (True, False)\n    return",
            ),
        ),
        (units(DAMAGE, UPKEEP), simulation("damage")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "limbo_does_not_fence",
        "A bookie that lost fences still accepts adds to ledgers that it may have fenced.",
        ("2.4",),
        (
            Edit(
                "bookie/storage/start_checkpoints.py",
                "            is_fenced = bool(self.flags & FLAG_FENCES_LOST)\n",
                "            is_fenced = False\n",
            ),
            Edit(
                "bookie/storage/upkeep.py",
                "        return bool(self._parts.index.meta.flags & FLAG_FENCES_LOST)\n",
                "        return bool(self._parts.index.meta.flags & 0 * FLAG_FENCES_LOST)\n",
            ),
        ),
        (units(DAMAGE, UPKEEP), simulation("damage")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "a_hung_disk_goes_unnoticed",
        "A write that never returns is not treated as a hang: the bookie stays registered, and"
        " writers wait for it.",
        ("2.1",),
        (
            Edit(
                "bookie/storage/disk_health.py",
                "        elif oldest.number == self._suspect:\n",
                "        elif oldest.number < 0:\n",
            ),
        ),
        (units(HEALTH),),
        (DISK_ONLY, hidden_from_simulation("its disks are slow, but none of them hangs for long")),
    ),
)

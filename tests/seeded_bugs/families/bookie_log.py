"""Seeded bugs of a bookie's log: early acknowledgements, changed bytes, wrong replay of damage.

Leaves the deletion of ledgers to `deletion`.

Source: protocol rules 2.4, 2.5 and 4.3; reliability design, D1-D4, D7, D14; BookKeeper #3329,
#4740.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, simulation

LOG = "bookie/log/log.py"
SCAN = "bookie/log/recovery_scan.py"
BEGINS = (
    "        outcome, waiting = self.outcome, self._waiting\n"
    "        if outcome.end_lsn <= self._proved_lsn and not self._is_torn:\n"
)
TRUSTS = (
    "        self._proved_lsn = max(self._proved_lsn, self.outcome.end_lsn)\n"
    "        await self._apply_proved()\n"
)

BUGS = (
    SeededBug(
        "add-acknowledged-before-the-sync",
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
        (simulation("crashes"),),
    ),
    SeededBug(
        "failed-sync-acknowledged",
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
        (simulation("crashes"),),
    ),
    SeededBug(
        "segment-name-not-synced",
        "A segment is written before its name is durable: a power cut removes the complete"
        " segment.",
        ("4.3",),
        (
            Edit(
                "bookie/log/log.py",
                "        await self._disk.sync_directory(DIRECTORY)\n        return",
                "        return",
            ),
        ),
        (simulation("crashes"),),
    ),
    SeededBug(
        "torn-tail-kept",
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
        (simulation("crashes"),),
    ),
    SeededBug(
        "no-such-entry-answered-in-limbo",
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
        (simulation("damage"),),
    ),
    SeededBug(
        "unsynced-records-trusted-at-a-start",
        "Records that a start reads from the log count as durable: a dead process wrote them"
        " without a sync, and a power cut removes them.",
        ("2.5",),
        (Edit(SCAN, BEGINS, TRUSTS + BEGINS),),
        (simulation("crashes"),),
    ),
    SeededBug(
        "end-of-the-log-not-written-again-at-a-start",
        "A start syncs the file again instead of writing its end again: pages whose write failed"
        " once count as clean, and are not written.",
        ("2.5",),
        (
            Edit(
                SCAN,
                BEGINS,
                "        for segment in self._log:\n"
                "            file = await self._disk.open(segment.name)\n"
                "            await file.truncate(file.size)\n"
                "            await file.close()\n" + TRUSTS + BEGINS,
            ),
        ),
        (simulation("crashes"),),
    ),
    SeededBug(
        "checkpoint-mark-read-after-its-changes",
        "A checkpoint reads its mark after it took the changed ledgers: what became durable in"
        " between lies below the mark and is not in the index.",
        ("2.5", "7.2"),
        (
            Edit(
                "bookie/storage/upkeep.py",
                "                    parts.log.durable_lsn,\n",
                "                    lambda: parts.log.durable_lsn,\n",
            ),
            Edit(
                "bookie/storage/checkpoints.py",
                "            mark_lsn, unsaved,",
                "            mark_lsn() if callable(mark_lsn) else mark_lsn, unsaved,",
            ),
        ),
        (simulation("takeovers"),),
    ),
)

"""Seeded bugs of a bookie's index, and of the removal of what it points to.

Leaves the log itself to `bookie_log`.

Source: protocol rules 2.4, 4.3, 8.4, 10.1 and 10.2; storage design, "Index"; reliability design,
D20; BookKeeper #2908, #3329, #4105, #3466, #870.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, simulation

READING = "bookie/storage/reading.py"
INDEX = "bookie/index/index.py"
COLLECTOR = "bookie/server/collector.py"

BUGS = (
    SeededBug(
        "no-such-entry-answered-for-corruption",
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
        (simulation("damage"),),
    ),
    SeededBug(
        "no-such-entry-answered-for-a-lost-run",
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
        (simulation("damage"),),
    ),
    SeededBug(
        "mark-stored-before-the-runs",
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
        (simulation("crashes"),),
    ),
    SeededBug(
        "ledger-deleted-on-a-stale-listing",
        "A ledger that is absent from a stale read is deleted without a second, agreed read.",
        ("10.1",),
        (
            Edit(
                COLLECTOR,
                "            metadata = await self._read(ledger_id, agreed=True)\n",
                "            metadata = await self._read(ledger_id, agreed=False)\n",
            ),
        ),
        (simulation("metadata"),),
    ),
    SeededBug(
        "tombstone-not-recorded",
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
        (simulation(),),
    ),
)

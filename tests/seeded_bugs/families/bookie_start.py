"""Seeded bugs of a bookie's start: readable records that count as durable.

Leaves what replay makes of damage to `bookie_log`.

Source: protocol rule 2.5.
"""

from tests.seeded_bugs.seeded_bug import DISK_ONLY, Edit, SeededBug, simulation, units

SCAN = "bookie/log/recovery_scan.py"
STARTS = "tests/unit/bookie/storage/test_durable_start.py"
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
        "replay_trusts_the_cache",
        "Records that a start reads from the log count as durable: a dead process wrote them"
        " without a sync, and a power cut removes them.",
        ("2.5",),
        (Edit(SCAN, BEGINS, TRUSTS + BEGINS),),
        (units(STARTS), simulation("crashes")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "fence_trusted_at_a_start",
        "A fence that a start finds after the proved end of the log is accepted and not written"
        " again.",
        ("2.5", "7.2"),
        (
            Edit(
                SCAN,
                "        copy, copied = await copy_tail(",
                "        fences = [r for r in tail if r.header.kind is RecordKind.FENCE]\n"
                "        await self._apply_all(fences)\n"
                "        tail = [r for r in tail if r not in fences]\n"
                "        copy, copied = await copy_tail(",
            ),
        ),
        (units(STARTS), simulation("takeovers")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "second_sync_taken_for_proof",
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
        (units(STARTS), simulation("crashes")),
        (DISK_ONLY,),
    ),
)

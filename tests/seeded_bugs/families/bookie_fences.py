"""Seeded bugs of a bookie's fences: answered too soon, lost, not checked.

Leaves the log that makes it durable to `bookie_log`.

Source: protocol rules 2.5, 4.3, 7.2 and 10.2; BookKeeper #4701, #4163, PR #4843.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, model, simulation

STORAGE = "bookie/storage/bookie_storage.py"
FENCE_NOT_AWAITED = Edit(
    STORAGE,
    "                status = await self._commits.append(RecordKind.FENCE, fence)\n",
    "                self._commits.queue(RecordKind.FENCE, fence, lambda _: None)\n",
)
READS = "bookie/storage/ledger_reads.py"
ADMISSION = "bookie/storage/admission.py"

BUGS = (
    SeededBug(
        "fence-answered-before-it-is-durable",
        "A fence is answered when it is queued: a crash loses it.",
        ("7.2",),
        (FENCE_NOT_AWAITED,),
        (
            model("pair, recovery, restart"),
            simulation("takeovers"),
        ),
    ),
    SeededBug(
        "negative-answered-before-an-accepted-add",
        'A fencing read answers "no such entry" for an entry whose add was accepted but not'
        " synced, and is acknowledged later.",
        ("4.3",),
        (
            FENCE_NOT_AWAITED,
            Edit(
                STORAGE,
                "            elif state.queued_count:\n"
                "                await self._log.barrier()\n"
                "                status = Status.OK if self._log.failure is None else"
                " Status.UNKNOWN\n",
                "",
            ),
            Edit(
                READS,
                "        if after_fence and state.queued_count:\n"
                "            await self._log.barrier()\n",
                "",
            ),
            Edit(
                READS,
                "        if result.status is Status.NO_SUCH_ENTRY and state.queued_count:\n",
                "        if False and state.queued_count:\n",
            ),
        ),
        (model("pair, recovery, restart"),),
        masked_by="7.2: a fence is durable, with all before it, when it is answered",
    ),
    SeededBug(
        "fence-of-an-unknown-ledger-lost-in-replay",
        "Replay skips the fence of a ledger that has no other records.",
        ("7.2",),
        (
            Edit(
                "bookie/storage/opening.py",
                "        state = self._ledgers.get_or_make(ledger_id)\n        state.touch()\n",
                "        if ledger_id not in self._ledgers.states:\n            return\n"
                "        state = self._ledgers.get_or_make(ledger_id)\n"
                "        state.touch()\n",
            ),
        ),
        (model("pair, recovery, restart"),),
    ),
    SeededBug(
        "fence-recorded-on-another-descriptor",
        "A fence of an unknown ledger is recorded on one descriptor, and later adds are checked"
        " against another.",
        ("4.3", "7.2"),
        (
            Edit(
                STORAGE,
                "        state = self._ledgers.get_or_make(ledger_id)\n"
                "        state.use_count += 1\n",
                "        known = self._ledgers.states.get(ledger_id)\n"
                "        state = known or replica_state.ReplicaState(ledger_id)\n"
                "        state.use_count += 1\n",
            ),
            Edit(
                STORAGE,
                "            refusal = self._admission.refuse_held(state, master_key)\n",
                "            if ledger_id not in self._ledgers.states:\n"
                "                return LedgerSnapshot(status, NO_ENTRY, NO_ENTRY, fenced=True)\n"
                "            refusal = self._admission.refuse_held(state, master_key)\n",
            ),
        ),
        (model("pair, recovery, restart"),),
    ),
    SeededBug(
        "recovery-adds-refused-by-the-fence",
        "A fenced ledger refuses the write-backs of the recovery that fenced it.",
        ("4.3", "7.4"),
        (
            Edit(
                ADMISSION,
                "        if refusal is not None or recovery:\n            return refusal\n"
                "        if state is None and",
                "        if refusal is not None or (recovery and not (state and state.fenced)):\n"
                "            return refusal\n        if state is None and",
            ),
        ),
        (model("pair, recovery, at once"),),
    ),
    SeededBug(
        "fence-ignored-by-adds",
        "Ordinary adds of a fenced ledger are stored.",
        ("4.3", "7.2"),
        (
            Edit(
                ADMISSION,
                "        if state is not None and state.fenced:\n"
                "            return Status.FENCED\n",
                "",
            ),
        ),
        (
            model("pair, recovery, at once"),
            simulation("takeovers"),
        ),
    ),
    SeededBug(
        "ledger-state-taken-for-unknown",
        "A ledger whose state is not in memory is treated as one that the bookie never had.",
        ("4.3", "7.2", "10.2"),
        (
            Edit(
                "bookie/storage/ledgers.py",
                "(ledger_id <= self.highest_id or",
                "(ledger_id <= -1 or",
            ),
        ),
        (simulation("takeovers"),),
    ),
)

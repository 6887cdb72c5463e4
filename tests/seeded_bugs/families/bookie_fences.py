"""Seeded bugs of a bookie's fences: answered too soon, lost, not checked.

Leaves the log that makes it durable to `bookie_log`.

Source: protocol rules 4.3, 7.2, 10.2; BookKeeper #4701, #4163, PR #4843, and points
e and f read in its code.
"""

from tests.seeded_bugs.seeded_bug import (
    DISK_ONLY,
    STORAGE_CRASHES,
    Edit,
    SeededBug,
    hidden_from_model,
    model,
    simulation,
    units,
)

STORAGE = "bookie/storage/bookie_storage.py"
ADMISSION = "bookie/storage/admission.py"
READS = "bookie/storage/ledger_reads.py"
STORAGE_TESTS = "tests/unit/bookie/storage/test_storage.py"
FENCE_NOT_AWAITED = Edit(
    STORAGE,
    "                status = await self._commits.append(RecordKind.FENCE, fence)\n",
    "                self._commits.queue(RecordKind.FENCE, fence, lambda _: None)\n",
)
ASKED_AGAIN = hidden_from_model(
    "an add that waits for its comparison is repeated after it, and checked again"
)

BUGS = (
    SeededBug(
        "fence_answered_before_durable",
        "A fence is answered when it is queued: a crash loses it.",
        ("7.2",),
        (FENCE_NOT_AWAITED,),
        (
            units(
                f"{STORAGE_TESTS}::test_a_fence_waits_for_the_adds_accepted_before_it",
                STORAGE_CRASHES,
            ),
            model("pair, recovery, restart"),
            simulation("takeovers"),
        ),
    ),
    SeededBug(
        "negative_overtakes_an_accepted_add",
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
        (
            units(
                f"{STORAGE_TESTS}::test_a_fence_waits_for_the_adds_accepted_before_it",
                f"{STORAGE_TESTS}::"
                "test_negatives_of_a_fenced_ledger_wait_for_its_queued_recovery_adds",
            ),
            model("pair, recovery, restart"),
            simulation("takeovers"),
        ),
        masked_by="7.2: a fence is durable, with all before it, when it is answered",
    ),
    SeededBug(
        "fence_lost_at_a_checkpoint",
        "A checkpoint moves its mark past a fence without storing the fenced state.",
        ("7.2",),
        (
            Edit(
                STORAGE,
                "            state.fenced = True\n            state.touch()\n",
                "            state.fenced = True\n",
            ),
            Edit(
                "bookie/storage/opening.py",
                "        state.touch()\n        if header.kind is RecordKind.FENCE:\n",
                "        if header.kind is not RecordKind.FENCE:\n"
                "            state.touch()\n"
                "        if header.kind is RecordKind.FENCE:\n",
            ),
        ),
        (units(STORAGE_CRASHES), simulation("takeovers")),
        (DISK_ONLY,),
    ),
    SeededBug(
        "fence_of_an_unknown_ledger_lost",
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
        (
            units(
                "tests/unit/bookie/storage/test_durable_start.py"
                "::test_fence_of_a_ledger_without_entries_is_replayed"
            ),
            model("pair, recovery, restart"),
            simulation("takeovers"),
        ),
    ),
    SeededBug(
        "two_descriptors_per_ledger",
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
            Edit(
                STORAGE,
                "from metadata.ids import EntryId, LedgerId\n",
                "from metadata.ids import NO_ENTRY, EntryId, LedgerId\n",
            ),
        ),
        (
            units(f"{STORAGE_TESTS}::test_a_fence_lasts_and_only_recovery_passes", STORAGE_CRASHES),
            model("pair, recovery, restart"),
            simulation("takeovers"),
        ),
    ),
    SeededBug(
        "fence_checked_before_the_comparison",
        "An add that waits for its comparison with stored entries is accepted although its ledger"
        " was fenced during the wait: check and store are two steps.",
        ("4.3",),
        (
            Edit(
                "bookie/storage/overlapping.py",
                "            refusal = add.refusal()\n            if refusal is not None:\n",
                "            refusal = None\n            if refusal is not None:\n",
            ),
        ),
        (
            units(
                f"{STORAGE_TESTS}::test_a_fence_during_a_comparison_refuses_the_add",
                STORAGE_CRASHES,
            ),
            simulation("takeovers"),
        ),
        (ASKED_AGAIN,),
    ),
    SeededBug(
        "recovery_adds_are_fenced_out",
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
        (
            units(f"{STORAGE_TESTS}::test_a_fence_lasts_and_only_recovery_passes"),
            model("pair, recovery, at once"),
            simulation("takeovers"),
        ),
    ),
    SeededBug(
        "fence_ignored_by_adds",
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
            units(f"{STORAGE_TESTS}::test_a_fence_lasts_and_only_recovery_passes"),
            model("pair, recovery, at once"),
            simulation("takeovers"),
        ),
    ),
    SeededBug(
        "not_in_memory_means_never_seen",
        "A ledger whose state is not in memory is treated as one that the bookie never had.",
        ("4.3", "7.2", "10.2"),
        (
            Edit(
                "bookie/storage/ledgers.py",
                "            ledger_id <= self.highest_id\n",
                "            ledger_id <= -1\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie/storage/test_cold_ledgers.py"
                "::test_a_cold_ledger_that_is_not_in_memory_was_seen",
                STORAGE_CRASHES,
            ),
            simulation("takeovers"),
        ),
        (hidden_from_model("the model has one ledger, which stays in memory"),),
    ),
)

"""Seeded bugs of ledgers of which no bookie knows the key: they are ended without one, or moved.

Source: protocol rules 9.14 and 9.15.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    units,
)

FENCES = "tests/unit/bookie/storage/test_keyless_fences.py"
STORIES = "tests/unit/repair/test_keyless_story.py"
ACCESS = "tests/unit/bookie/server/test_server_access.py"
NOT_MODELLED = hidden_from_model("the model has no keys, and no ledgers without a writer")
NOT_SHOWN = hidden_from_simulation("whether the simulation with repair finds it was not tried yet")

BUGS = (
    SeededBug(
        "keyless_fence_in_memory_only",
        "A fence without a key is answered from memory: a crash loses it.",
        ("7.2", "9.14"),
        (
            Edit(
                "bookie/storage/bookie_storage.py",
                "            if not state.is_fence_durable:\n",
                "            if not state.is_fence_durable and master_key is not None:\n",
            ),
        ),
        (units(f"{FENCES}::test_it_is_durable_before_its_answer"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "keyless_fence_where_a_key_is_known",
        "A bookie that knows a ledger's key fences the ledger without it.",
        ("9.14",),
        (
            Edit(
                "bookie/storage/admission.py",
                "        if master_key is None and state is not None and"
                " state.master_key is not None:\n",
                "        if master_key is None and state is not None and self.is_closing:\n",
            ),
        ),
        (units(f"{FENCES}::test_it_is_refused_where_a_key_is_known_and_changes_nothing"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "keyless_fence_binds_a_key",
        "A fence without a key binds the ledger to a key: its owner is refused.",
        ("9.14",),
        (
            Edit(
                "bookie/server/ledger_requests.py",
                "        snapshot = await self._storage.fence(ledger_id, None)\n",
                "        snapshot = await self._storage.fence(ledger_id, bytes(32))\n",
            ),
        ),
        (units(f"{ACCESS}::test_repair_fences_a_ledger_without_its_key"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "unclaimed_ledger_is_ended",
        "Repair ends a ledger that was created and not claimed: its writer finds it closed.",
        ("9.15",),
        (
            Edit(
                "ledger_client/recovery/missing_writers.py",
                "        if ledger.is_unclaimed:\n",
                "        if ledger.is_unclaimed and not ledger.fragments:\n",
            ),
        ),
        (units(f"{STORIES}::test_a_ledger_that_is_not_claimed_moves_and_stays_open"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
)

"""Seeded bugs of a restore of the metadata: what goes back, what is taken for deleted.

Leaves a service that was restored from a backup of its own files to `identity`.

Source: protocol rule 10.6.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    units,
)

UNITS = "tests/unit/metadata/restore"
IDENTITY = "tests/unit/bookie/identity"
NOT_MODELLED = hidden_from_model("the model has no dump and no restore")
NOT_SIMULATED = hidden_from_simulation("the simulation does not restore metadata from a dump")
HIDDEN = (NOT_MODELLED, NOT_SIMULATED)
RESTORING = "metadata/restore/restoring.py"
ADJUSTING = "metadata/restore/adjusting.py"

BUGS = (
    SeededBug(
        "restored_into_a_root_that_is_not_empty",
        "A dump is written where other metadata is stored.",
        ("10.6",),
        (Edit(RESTORING, "            if names:\n", "            if len(names) > 2:\n"),),
        (units(f"{UNITS}/test_restoring.py"),),
        HIDDEN,
    ),
    SeededBug(
        "restored_counter_without_margin",
        "The next ledger id after a restore is that of the dump: ids that bookies hold come again.",
        ("10.2", "10.6"),
        (
            Edit(
                ADJUSTING,
                "    return pack_block(path, number + margin)\n",
                "    return pack_block(path, number)\n",
            ),
        ),
        (units(f"{UNITS}/test_adjusting.py", f"{UNITS}/test_restoring.py"),),
        HIDDEN,
    ),
    SeededBug(
        "collected_before_the_restore_is_accepted",
        "A bookie that did not see that the service went back removes what it does not know.",
        ("10.6",),
        (
            Edit(
                "bookie/identity/metadata_age.py",
                "                    self._note_went_back(_UNACCEPTED)\n",
                "                    pass\n",
            ),
        ),
        (units(f"{IDENTITY}/test_metadata_age.py", "tests/unit/bookie/server/test_collector.py"),),
        HIDDEN,
    ),
    SeededBug(
        "starts_restored_from_node_versions",
        "A restored cookie counts starts from 0, as its new node does: old copies are not noticed.",
        ("2.4", "10.6"),
        (
            Edit(
                ADJUSTING,
                "        cookie = cookie.counted_at(cookie.starts_at(version), Version(0))\n",
                "        cookie = cookie.counted_at(0, Version(0) if version else version)\n",
            ),
        ),
        (units(f"{UNITS}/test_adjusting.py", f"{UNITS}/test_restoring.py"),),
        HIDDEN,
    ),
    SeededBug(
        "starts_after_the_dump_refuse_the_bookie",
        "A bookie that started after the dump refuses to start on the restored metadata.",
        ("10.6",),
        (
            Edit(
                "bookie/identity/cookie.py",
                "    return max(starts, max(found, default=0) - 1)\n",
                "    return starts if found else 0\n",
            ),
        ),
        (units(f"{IDENTITY}/test_identity.py"),),
        HIDDEN,
    ),
    SeededBug(
        "cluster_before_the_restore_ends",
        "The identity of the cluster is written with the other nodes: half a restore is a cluster.",
        ("10.6",),
        (
            Edit(
                RESTORING,
                "        if node.path == INSTANCE:\n            continue  # last\n",
                "",
            ),
        ),
        (units(f"{UNITS}/test_restoring.py"),),
        HIDDEN,
    ),
    SeededBug(
        "restored_writer_continues",
        "An open ledger is restored as open: its writer and a recovery use the same versions.",
        ("1.5", "10.6"),
        (
            Edit(
                ADJUSTING,
                "    if ledger.state is LedgerState.CLOSED:\n",
                "    if ledger.state is not LedgerState.IN_RECOVERY:\n",
            ),
        ),
        (units(f"{UNITS}/test_adjusting.py", f"{UNITS}/test_restoring.py"),),
        HIDDEN,
    ),
    SeededBug(
        "recovered_before_the_restore_is_accepted",
        "Repair recovers a ledger on the ensemble of the dump, which may be an old one.",
        ("9.2", "10.6"),
        (
            Edit(
                "repair/open_ledger_repair.py",
                "            if await is_unaccepted(services.store):\n",
                "            if await is_unaccepted(services.store) and not ledger.fragments:\n",
            ),
        ),
        (
            units(
                "tests/unit/repair/test_repair_process.py"
                "::test_no_ledger_is_recovered_before_a_restore_is_accepted"
            ),
        ),
        HIDDEN,
    ),
)

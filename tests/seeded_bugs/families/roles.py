"""Seeded bugs of roles on ledgers: a bookie allows what no role allows, or drops what one does.

Source: protocol section 12.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    units,
)

ROLES = "tests/unit/bookie/server/test_roles.py"
TABLE = "tests/unit/metadata/security/test_ledger_roles.py"
RIGHTS = "tests/unit/bookie/server/test_ledger_rights.py"
OWNERS = "tests/unit/ledger_client/test_own_principal.py"
NOT_MODELLED = hidden_from_model("the model has no principals")
NOT_SIMULATED = hidden_from_simulation("the simulated bookies need no roles")

BUGS = (
    SeededBug(
        "a_writer_may_recover",
        "The role of a writer includes adds that pass a fence.",
        ("12.3",),
        (
            Edit(
                "metadata/security/ledger_roles.py",
                "        LedgerRole.WRITER: LedgerRight.APPEND,\n",
                "        LedgerRole.WRITER: LedgerRight.APPEND | LedgerRight.RECOVERY_ADD,\n",
            ),
        ),
        (units(f"{TABLE}::test_every_role_has_rights"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
    SeededBug(
        "a_fence_is_a_write",
        "The right to append is enough for a fence.",
        ("12.3",),
        (
            Edit(
                "bookie/server/ledger_rights.py",
                "        LedgerOperation.FENCE: LedgerRight.FENCE,\n",
                "        LedgerOperation.FENCE: LedgerRight.APPEND,\n",
            ),
        ),
        (units(f"{RIGHTS}::test_a_writer_passes_no_fence_and_makes_none"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
    SeededBug(
        "no_principal_owns_what_has_no_owner",
        "A client without a principal has all rights on ledgers without an owner.",
        ("12.1", "12.3"),
        (
            Edit(
                "metadata/security/ledger_roles.py",
                "    if not principal:\n        return LedgerRight.NONE\n    if principal ==",
                "    if principal ==",
            ),
        ),
        (units(f"{TABLE}::test_a_ledger_without_an_owner_belongs_to_no_client"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
    SeededBug(
        "adds_pass_before_the_rights_are_known",
        "Until the metadata are read, a client has every right.",
        ("12.4",),
        (
            Edit(
                "bookie/server/attachments.py",
                "        attachment.waiting = []\n",
                "        attachment.waiting, attachment.rights = [], EVERY_BIT\n",
            ),
        ),
        (units(f"{ROLES}::test_the_owner_may_do_everything_and_others_nothing"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
    SeededBug(
        "no_answer_is_a_missing_ledger",
        "When the metadata service does not answer, the ledger counts as deleted.",
        ("12.4",),
        (
            Edit(
                "bookie/server/attachments.py",
                "        except FactsUnavailableError as error:\n",
                "        except FactsUnavailableError as error:\n"
                "            attachment.status = Status.DELETED\n",
            ),
        ),
        (units(f"{ROLES}::test_attached_ledgers_go_on_while_the_metadata_service_is_away"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
    SeededBug(
        "attached_ledgers_keep_their_rights",
        "A change of roles has no effect on ledgers that are attached.",
        ("12.5",),
        (
            Edit(
                "bookie/server/attachments.py",
                "                attachment.rights = authorizer.rights(self.principal,",
                "                authorizer.rights(self.principal,",
            ),
        ),
        (units(f"{ROLES}::test_changes_of_grants_reach_attached_ledgers"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
    SeededBug(
        "a_recovery_begins_before_it_may",
        "A client begins a recovery without the right to fence: the writer ends.",
        ("12.4",),
        (
            Edit(
                "ledger_client/own_principal.py",
                "                if RECOVERY & ~reply.rights:\n",
                "                if not reply.rights:\n",
            ),
        ),
        (units(f"{OWNERS}::test_a_recovery_without_the_right_changes_nothing"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
    SeededBug(
        "a_ledger_without_its_owner",
        "A client that gets no answer creates a ledger without an owner.",
        ("12.2",),
        (
            Edit(
                "ledger_client/own_principal.py",
                "        if failures:\n",
                "        if len(failures) > BOOKIES_ASKED_MAX:\n",
            ),
        ),
        (units(f"{OWNERS}::test_without_an_answer_no_ledger_is_created"),),
        (NOT_MODELLED, NOT_SIMULATED),
    ),
)

"""Ways to be wrong for a copy to a member that catches up, and for the recovery of an in-sync
ledger, clean or not.

Leaves who is a member while the ledger is written to `in_sync`.

Source: protocol rules 9.1, 11.2, 11.5, 11.6.
"""

from tests.seeded_bugs.families.in_sync import (
    BEYOND_THE_BUDGET,
    CALLS,
    END_TO_END,
    FENCE,
    IN_CLUSTERS,
    IN_THE_MODELS_LIST,
    METADATA,
    READ,
    RECOVERING,
    SAFE_ALL_THE_SAME,
    WRITE,
)
from tests.seeded_bugs.seeded_bug import (
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_simulation,
    units,
)

COPYING = "ledger_client/in_sync/copying.py"
COPIES = units(
    "tests/unit/ledger_client/in_sync/test_copying.py",
    "tests/unit/ledger_client/in_sync/test_copying_conflicts.py",
)

BUGS = (
    SeededBug(
        "named_before_the_copy",
        "The target of a copy is stored as a member first, and then copied to.",
        ("9.1", "11.2"),
        (
            Edit(
                COPYING,
                "            progress = await self._copy(plan, stored)\n"
                "            stored = await self._name(plan, stored)\n",
                "            marked = stored\n"
                "            stored = await self._name(plan, stored)\n"
                "            progress = await self._copy(plan, marked)\n",
            ),
        ),
        (COPIES, IN_CLUSTERS),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "marked_once_it_is_copied",
        "The target is stored as incoming only after the copy: what it was sent before, unnamed, it"
        " may have dropped.",
        ("9.1", "10.1"),
        (
            Edit(
                COPYING,
                "        stored = await self._mark(plan, stored)\n        for",
                "        for",
            ),
            Edit(
                COPYING,
                "            stored = await self._name(plan, stored)\n",
                "            stored = await self._mark(plan, stored)\n"
                "            stored = await self._name(plan, stored)\n",
            ),
        ),
        (COPIES,),
        (
            SHELL_ONLY,
            hidden_from_simulation(
                "bookies drop nothing of an open ledger, and no other is copied"
            ),
        ),
    ),
    SeededBug(
        "copies_not_read_back",
        "What the target acknowledged is taken for what it holds.",
        ("9.1", "11.2"),
        (
            Edit(
                COPYING,
                "        while position < piece.next_entry_id:\n"
                "            position = await self._check(piece, position)\n",
                "        position = piece.next_entry_id\n",
            ),
        ),
        (COPIES,),
        (
            SHELL_ONLY,
            hidden_from_simulation(
                "a sound bookie holds what it acknowledged, and no other is asked"
            ),
        ),
    ),
    SeededBug(
        "mark_left_behind",
        "A copy that fails, or is given up, leaves its target marked as incoming.",
        ("9.1",),
        (
            Edit(
                COPYING,
                "            await self._unmark(plan)\n            raise\n",
                "            raise\n",
            ),
        ),
        (COPIES, IN_CLUSTERS),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "lone_recovering_survivor_refused",
        "A recovery in in-sync mode asks for a majority of the last members.",
        ("11.5",),
        (
            Edit(
                FENCE,
                "        if self._quorum.is_in_sync and self._waiting:\n            return False\n",
                "        if self._quorum.is_in_sync and (\n"
                "            self._waiting\n"
                "            or 2 * len(self.known_positions) <= len(self._fragment.ensemble)\n"
                "        ):\n            return False\n",
            ),
        ),
        (RECOVERING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "first_answer_recovers",
        "Recovery in in-sync mode goes on with the first member that fenced, and asks no other.",
        ("11.5",),
        (
            Edit(
                FENCE,
                "        if self._quorum.is_in_sync and self._waiting:\n            return False\n",
                "",
            ),
        ),
        (RECOVERING,),
        (IN_THE_MODELS_LIST, SAFE_ALL_THE_SAME),
    ),
    SeededBug(
        "negative_preferred",
        "The first member that denies an entry ends an in-sync ledger, though another may have it.",
        ("11.5",),
        (
            Edit(
                READ,
                "        if len(negatives) >= needed and (is_heard or not prefers_found):\n",
                "        if len(negatives) >= needed:\n",
            ),
        ),
        (RECOVERING,),
        (IN_THE_MODELS_LIST, SAFE_ALL_THE_SAME),
    ),
    SeededBug(
        "unsure_member_denies",
        "In in-sync mode a member that is not sure of an entry, or fell silent, counts as denying"
        " it.",
        ("3.2", "7.3", "11.5"),
        (
            Edit(
                READ,
                "        negatives = [a for a in said if a.status in NEGATIVES]\n",
                "        unsure = (Status.UNKNOWN,) if prefers_found else ()\n"
                "        negatives = [a for a in said if a.status in (*NEGATIVES, *unsure)]\n",
            ),
        ),
        (RECOVERING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "left_out_members_stay_named",
        "Members that a recovery could not write back to stay named for what they lack.",
        ("7.4", "11.5"),
        (
            Edit(
                WRITE,
                "            if fragment != self._original and fragment.first_entry_id <"
                " self._next_entry_id\n",
                "            if fragment != self._original and fragment.first_entry_id <"
                " self._next_entry_id\n"
                "            and len(fragment.ensemble) == len(self._original.ensemble)\n",
            ),
        ),
        (RECOVERING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "shrinking_forgets_replacements",
        "When a recovery goes on with fewer bookies, it forgets the fragments that replacements"
        " opened before.",
        ("7.4", "11.5"),
        (
            Edit(
                WRITE,
                "        self._fragments.append(Fragment(first, ensemble))\n",
                "        if len(ensemble) < len(self._ensemble if self._fragments else ensemble):\n"
                "            self._fragments[:] = [self._original]\n"
                "        self._fragments.append(Fragment(first, ensemble))\n",
            ),
        ),
        (RECOVERING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "given_up_without_a_word",
        "An unclean recovery does not record what it gave up.",
        ("11.6",),
        (
            Edit(
                METADATA,
                "        return replace(closed, given_up=given_up)\n",
                "        return closed\n",
            ),
        ),
        (END_TO_END,),
        (SHELL_ONLY, BEYOND_THE_BUDGET),
    ),
    SeededBug(
        "unclean_without_asking",
        "An unclean recovery gives up the last fragment without asking its members.",
        ("11.6",),
        (
            Edit(
                CALLS,
                "            return await self.recover(ledger_id, password, timeout_s)\n"
                "        except RecoveryUndecidedError as error:\n",
                "            stored, version = await services.ledgers.get(ledger_id, fresh=True)\n"
                "            if stored.state is LedgerState.OPEN:\n"
                "                begun = stored.with_recovery_begun(services.for_writers.token())\n"
                "                await services.ledgers.compare_and_set(begun, version)\n"
                "            raise RecoveryUndecidedError(\n"
                '                "not asked", ledger_id=ledger_id, missing={}\n'
                "            )\n"
                "        except RecoveryUndecidedError as error:\n",
            ),
        ),
        (END_TO_END,),
        (SHELL_ONLY, BEYOND_THE_BUDGET),
    ),
)

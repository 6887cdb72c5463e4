"""Seeded bugs of copies to members that catch up, and of recoveries in in-sync mode.

Leaves who is a member while the ledger is written to `in_sync`.

Source: protocol rules 9.1, 11.2, 11.5, 11.6.
"""

from tests.seeded_bugs.families.in_sync import (
    BEYOND_THE_BUDGET,
    CALLS,
    CLOSES,
    END_TO_END,
    FENCE,
    IN_CLUSTERS,
    IN_THE_MODELS_LIST,
    METADATA,
    READ,
    RECOVERING,
    RECOVERY,
    SAFE_ALL_THE_SAME,
    WATCH,
    WRITE,
)
from tests.seeded_bugs.seeded_bug import (
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

COPYING = "ledger_client/in_sync/copying.py"
COPY_ENDS = "ledger_client/in_sync/copy_ends.py"
COPIES = units(
    "tests/unit/ledger_client/in_sync/test_copying.py",
    "tests/unit/ledger_client/in_sync/test_copying_conflicts.py",
)

BUGS = (
    SeededBug(
        "named_before_the_copy",
        "The target of a copy is stored as a member before the entries are copied.",
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
        "The target is stored as incoming only after the copy: it may have dropped entries that it"
        " got before, when the metadata did not name it.",
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
                "bookies drop no entries of an open ledger, and no other ledger is copied"
            ),
        ),
    ),
    SeededBug(
        "copies_not_read_back",
        "Entries that the target acknowledged count as held by it without a check.",
        ("9.1", "11.2"),
        (
            Edit(
                COPY_ENDS,
                "        while position < piece.next_entry_id:\n"
                "            position = await self._check(piece, position)\n",
                "        position = piece.next_entry_id\n",
            ),
        ),
        (COPIES,),
        (
            SHELL_ONLY,
            hidden_from_simulation(
                "a sound bookie holds the entries that it acknowledged, and no other bookie is used"
            ),
        ),
    ),
    SeededBug(
        "returned_bytes_not_compared",
        "A batch that the target returns counts as correct if it begins where one was sent.",
        ("9.1",),
        (
            Edit(
                "ledger_client/protocol/copy_piece.py",
                "            if known != batch.data:\n",
                "            if known is None:\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/protocol/test_copy_piece.py",
                "tests/unit/ledger_client/in_sync/test_copying.py",
            ),
        ),
        (
            SHELL_ONLY,
            hidden_from_simulation("a sound bookie returns the bytes that it acknowledged"),
        ),
    ),
    SeededBug(
        "mark_left_behind",
        "A copy that fails or is abandoned leaves its target marked as incoming.",
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
        "A recovery in in-sync mode requires a majority of the last members.",
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
        "A recovery in in-sync mode continues after the first member that fenced, and reads no"
        " other.",
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
        "The first member that denies an entry ends an in-sync ledger, though another member may"
        " have it.",
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
        "In in-sync mode a member that answers UNKNOWN, or does not answer, counts as denying the"
        " entry.",
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
        "Members that a recovery could not write back to stay named for entries that they lack.",
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
        "shrinking_loses_replacements",
        "When a recovery continues with fewer bookies, it drops the fragments that earlier"
        " replacements opened.",
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
        (END_TO_END, simulation("in_sync")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "unclean_without_asking",
        "An unclean recovery gives up the last fragment without reading from its members.",
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
        (END_TO_END, simulation("in_sync")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "unclean_gives_up_what_a_member_confirmed",
        "An unclean recovery gives up the last fragment although a member that answers confirmed"
        " entries of it.",
        ("11.6",),
        (
            Edit(
                RECOVERY,
                "        return self._reader.verdict() =="
                " Ended(self._metadata.last_fragment.first_entry_id)\n",
                "        return isinstance(self._reader.verdict(), Ended)\n",
            ),
        ),
        (RECOVERING,),
        (BEYOND_THE_BUDGET, hidden_from_model("the model has no unclean recoveries")),
    ),
    SeededBug(
        "unclean_stops_at_an_empty_fragment",
        "An unclean recovery refuses for good when a member answers that it holds nothing of the"
        " last fragment.",
        ("11.6",),
        (
            Edit(
                CALLS,
                "            if error.entry_id is not None and not is_empty:\n",
                "            if error.entry_id is not None:\n",
            ),
        ),
        (CLOSES,),
        (SHELL_ONLY, BEYOND_THE_BUDGET),
    ),
    SeededBug(
        "writer_ignores_a_close_elsewhere",
        "A writer whose members were not reached by an unclean close continues without end.",
        ("11.7",),
        (
            Edit(
                WATCH,
                "            self._shell.dispatch(e.MetadataSeen(*stored))\n",
                "            assert stored\n",
            ),
        ),
        (CLOSES, simulation("in_sync")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "unreached_members_never_fenced",
        "After an unclean close, the members that did not answer are not requested to fence.",
        ("11.6",),
        (
            Edit(
                CALLS,
                "            services.late_fences.start(keys, closed.given_up[-1].ensemble)\n",
                "            services.late_fences.start(keys, ())\n",
            ),
        ),
        (CLOSES,),
        (SHELL_ONLY, BEYOND_THE_BUDGET),
    ),
    SeededBug(
        "unclean_under_a_live_writer",
        "An unclean recovery does not check whether the writer of the ledger lives.",
        ("9.2", "11.6"),
        (
            Edit(
                CALLS,
                "        if not even_if_writer_lives:\n",
                "        if not even_if_writer_lives and not metadata:\n",
            ),
        ),
        (CLOSES,),
        (SHELL_ONLY, BEYOND_THE_BUDGET),
    ),
)

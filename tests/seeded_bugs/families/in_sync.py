"""Seeded bugs of a ledger in in-sync mode: members that count, leave, join and recover.

Leaves what both modes share to `append`, `recovery` and `recovery_close`.

Source: protocol section 11 and rule 9.1; KIP-16, KIP-106.
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import (
    SCENARIOS,
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

ACKS = "ledger_client/protocol/acks.py"
APPEND = "ledger_client/protocol/append.py"
MEMBERSHIP = "ledger_client/protocol/membership.py"
MEMBERS = "ledger_client/writing/in_sync_members.py"
FENCE = "ledger_client/protocol/recovery_fence.py"
READ = "ledger_client/protocol/recovery_read.py"
RECOVERY = "ledger_client/protocol/recovery.py"
WRITE = "ledger_client/protocol/recovery_write.py"
CALLS = "ledger_client/ledger_calls.py"
ADMISSION = "ledger_client/writing/admission.py"
METADATA = "metadata/ledgers/ledger_metadata.py"

WATCH = "ledger_client/writing/stored_watch.py"

CLOSES = units(
    "tests/unit/ledger_client/recovery/test_unclean_recovery.py",
    "tests/unit/simulation/test_unclean_close.py",
)
IN_SYNC_TESTS = "tests/unit/ledger_client/in_sync/test_in_sync.py"
MEMBERSHIP_TESTS = "tests/unit/ledger_client/protocol/test_membership.py"
RECOVERY_TESTS = "tests/unit/ledger_client/protocol/test_recovery_protocol.py"
HISTORY: Final = "test_every_in_sync_history_keeps_the_rules"
END_TO_END = units(IN_SYNC_TESTS)
WRITING = units(f"{MEMBERSHIP_TESTS}::{HISTORY}", SCENARIOS, IN_SYNC_TESTS)
RECOVERING = units(f"{RECOVERY_TESTS}::{HISTORY}", SCENARIOS, IN_SYNC_TESTS)
IN_CLUSTERS = simulation("in_sync")
IN_THE_MODELS_LIST = hidden_from_model("the model has in-sync bugs of its own: tests/model/bugs.py")
SAFE_ALL_THE_SAME = hidden_from_simulation(
    "acknowledged entries are on every member: only entries without an acknowledgement are cut off"
)
BEYOND_THE_BUDGET = hidden_from_simulation(
    "its ledgers are recovered uncleanly only when nothing is written and every fence arrives"
)
LEAVE_OR_STAY: Final = "        if len(in_sync) < self._min_in_sync:\n"

BUGS = (
    SeededBug(
        "last_in_sync_member_gives_way",
        "A spare replaces the last in-sync member because that member is away.",
        ("11.2",),
        (
            Edit(
                "ledger_client/protocol/membership.py",
                "    if not in_sync:\n        return None\n",
                "",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "catching_up_counts_as_in_sync",
        "A member that has not caught up counts for the minimum number in sync.",
        ("11.2", "11.4"),
        (
            Edit(
                APPEND,
                "        return tuple(b for b in self._in_sync_members if not"
                " self._health.is_absent(b))\n",
                "        return tuple(b for b in self._ensemble if not"
                " self._health.is_absent(b))\n",
            ),
            Edit(
                APPEND,
                "            return self._in_sync_members\n",
                "            return self._ensemble\n",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "one_older_fragment_is_enough",
        "A member that holds any older fragment of a ledger counts as holding all of them.",
        ("11.2",),
        (
            Edit(
                METADATA,
                "            if all(member in ensemble for ensemble in earlier)\n",
                "            if not earlier or any(member in ensemble for ensemble in earlier)\n",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "set_shrinks_below_the_least",
        "Failed members leave while at least one is left, whatever `min_in_sync` is.",
        ("11.4",),
        (Edit(MEMBERSHIP, LEAVE_OR_STAY, "        if not in_sync:\n"),),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "lone_writing_survivor_refused",
        "A set of one is never stored, although one in-sync member is enough for the ledger.",
        ("11.4", "11.5"),
        (
            Edit(
                MEMBERSHIP,
                LEAVE_OR_STAY,
                "        if len(in_sync) < max(2, self._min_in_sync):\n",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "confirmed_below_the_least",
        "Entries are confirmed although fewer than `min_in_sync` members are alive and in sync.",
        ("11.4",),
        (
            Edit(
                APPEND,
                "if self._is_steady and not self.lacks_in_sync and self._pending.confirm():",
                "if self._is_steady and self._pending.confirm():",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "appends_accepted_below_the_least",
        "Appends are accepted and wait, where they must be refused at once.",
        ("11.4",),
        (
            Edit(
                ADMISSION,
                "        if self._shell.protocol.lacks_in_sync:\n",
                "        if self._shell.failure is not None:\n",
            ),
        ),
        (END_TO_END,),
        (
            SHELL_ONLY,
            hidden_from_simulation(
                "waiting entries are acknowledged only when enough members are in sync"
            ),
        ),
    ),
    SeededBug(
        "appends_refused_while_fences_are_checked",
        "Members whose FENCED answers are not checked yet do not count: appends are refused.",
        ("4.7", "11.4"),
        (Edit(APPEND, "self._health.is_absent(b)", "self._health.is_out(b)"),),
        (units(SCENARIOS),),
        (
            IN_THE_MODELS_LIST,
            hidden_from_simulation("only appends that begin during the read are refused: one seed"),
        ),
    ),
    SeededBug(
        "all_but_one_acknowledge",
        "An entry is acknowledged when all members but one have it.",
        ("4.5", "11.1"),
        (
            Edit(
                ACKS,
                "        needed = self._quorum.ack_quorum\n        moved = False\n",
                "        needed = self._quorum.ack_quorum\n"
                "        needed -= self._quorum.is_in_sync and needed > 1\n        moved = False\n",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "answers_stay_where_they_were",
        "When a member leaves, the answers keep their positions, and count for its neighbours.",
        ("4.4", "11.3"),
        (
            Edit(
                ACKS,
                "            batch.stored = _moved(batch.stored, sources)\n",
                "            same = [None if s is None else p for p, s in enumerate(sources)]\n"
                "            batch.stored = _moved(batch.stored, same)\n",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "laggard_never_forgiven",
        "A member that was late stays out for ever, although it answers again.",
        ("11.3",),
        (
            Edit(
                APPEND,
                "        if self._health.is_lagging(bookie_id) and not"
                " self._pending.is_behind(position):\n"
                "            self._health.forgive(bookie_id)\n"
                "            return self._decide_again()\n",
                "",
            ),
        ),
        (WRITING, IN_CLUSTERS),
        (IN_THE_MODELS_LIST,),
    ),
    SeededBug(
        "lag_counted_at_the_newest_entry",
        "A member counts as lagging by any entry that it lacks, not by the oldest one.",
        ("11.3",),
        (
            Edit(
                ACKS,
                "        if not self.is_behind(position):\n            return 0\n",
                "",
            ),
        ),
        (units("tests/unit/ledger_client/protocol/test_acks.py", MEMBERSHIP_TESTS), IN_CLUSTERS),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "all_are_late_with_one",
        "When the oldest entry is late, members that have stored it count as lagging too.",
        ("11.3",),
        (
            Edit(
                MEMBERS,
                "            if lag and late_s > self._lag_max_s:\n",
                "            if late_s > self._lag_max_s:\n",
            ),
        ),
        (END_TO_END, IN_CLUSTERS),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "only_the_newest_fragment_is_copied",
        "A member that catches up gets the newest fragment that it lacks, and no older one.",
        ("11.2",),
        (
            Edit(
                MEMBERS,
                "        for fragment in reversed(metadata.fragments):\n",
                "        for fragment in metadata.fragments[-2:-1]:\n",
            ),
        ),
        (END_TO_END, IN_CLUSTERS),
        (SHELL_ONLY,),
    ),
)

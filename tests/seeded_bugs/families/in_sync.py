"""Seeded bugs of a ledger in in-sync mode: members that count, leave, join and recover.

Leaves what both modes share to `append`, `recovery` and `recovery_close`.

Source: protocol section 11, rules 3.2, 7.3, 7.4 and 9.1; KIP-16, KIP-106.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, simulation

APPEND = "ledger_client/protocol/append.py"
METADATA = "metadata/ledgers/ledger_metadata.py"
MEMBERSHIP = "ledger_client/protocol/membership.py"
LEAVE_OR_STAY = "        if len(in_sync) < self._min_in_sync:\n"
ACKS = "ledger_client/protocol/acks.py"
MEMBERS = "ledger_client/writing/in_sync_members.py"
COPYING = "ledger_client/copying.py"
FENCE = "ledger_client/protocol/recovery.py"
WRITE = "ledger_client/protocol/recovery_write.py"

BUGS = (
    SeededBug(
        "last-in-sync-member-replaced",
        "A spare replaces the last in-sync member because that member is away.",
        ("11.2",),
        (
            Edit(
                "ledger_client/protocol/membership.py",
                "    if not in_sync:\n        return None\n",
                "",
            ),
        ),
        (simulation("in_sync"),),
    ),
    SeededBug(
        "catching-up-counted-as-in-sync",
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
        (simulation("in_sync"),),
    ),
    SeededBug(
        "older-fragments-not-required",
        "A member that holds any older fragment of a ledger counts as holding all of them.",
        ("11.2",),
        (
            Edit(
                METADATA,
                "        return tuple(member for member in members if not any("
                "self.fragments_without(member)))\n",
                "        most = max(1, len(self.fragments) - 1)\n"
                "        return tuple(\n"
                "            member for member in members\n"
                "            if len(list(self.fragments_without(member))) < most\n"
                "        )\n",
            ),
        ),
        (simulation("in_sync"),),
    ),
    SeededBug(
        "set-shrunk-below-the-minimum",
        "Failed members leave while at least one is left, whatever `min_in_sync` is.",
        ("11.4",),
        (Edit(MEMBERSHIP, LEAVE_OR_STAY, "        if not in_sync:\n"),),
        (simulation("in_sync"),),
    ),
    SeededBug(
        "confirmed-below-the-minimum-in-sync",
        "Entries are confirmed although fewer than `min_in_sync` members are alive and in sync.",
        ("11.4",),
        (
            Edit(
                APPEND,
                "if self._is_steady and not self.lacks_in_sync and self._pending.confirm():",
                "if self._is_steady and self._pending.confirm():",
            ),
        ),
        (simulation("in_sync"),),
    ),
    SeededBug(
        "confirmed-by-all-members-but-one",
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
        (simulation("in_sync"),),
    ),
    SeededBug(
        "answers-kept-at-positions-of-a-smaller-set",
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
        (simulation("in_sync"),),
    ),
    SeededBug(
        "members-counted-as-late-with-one",
        "When the oldest entry is late, members that have stored it count as lagging too.",
        ("11.3",),
        (
            Edit(
                MEMBERS,
                "            if lag and late_s > self._lag_max_s:\n",
                "            if late_s > self._lag_max_s:\n",
            ),
        ),
        (simulation("in_sync"),),
    ),
    SeededBug(
        "older-fragments-not-copied",
        "A member that catches up gets the newest fragment that it lacks, and no older one.",
        ("11.2",),
        (
            Edit(
                MEMBERS,
                "        for fragment in metadata.fragments_without(bookie_id):\n",
                "        newest = metadata.fragments[-2:-1]\n"
                "        for fragment in [f for f in newest if bookie_id not in f.ensemble]:\n",
            ),
        ),
        (simulation("in_sync"),),
    ),
    SeededBug(
        "member-named-before-its-copy",
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
        (simulation("in_sync"),),
    ),
    SeededBug(
        "lone-survivor-refused-by-a-recovery",
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
        (simulation("in_sync"),),
    ),
    SeededBug(
        "members-named-without-write-back",
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
        (simulation("in_sync"),),
    ),
    SeededBug(
        "loss-not-recorded-by-an-unclean-recovery",
        "An unclean recovery does not record what it gave up.",
        ("11.6",),
        (
            Edit(
                METADATA,
                "        return replace(closed, given_up=given_up)\n",
                "        return closed\n",
            ),
        ),
        (simulation("in_sync"),),
    ),
)

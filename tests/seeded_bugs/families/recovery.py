"""Seeded bugs of a recovery while it fences and reads.

Leaves how a bookie keeps its fence to `bookie_fences`, and what follows to `recovery_close`.

Source: protocol rules 7.1-7.3; BookKeeper #2614, #2615, #365, #1067.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, model, simulation

READ = "ledger_client/protocol/recovery_read.py"
COPIES = "metadata/ledgers/copies.py"
FENCE = "ledger_client/protocol/recovery.py"
NO_GUARD_OF_OLDER_FRAGMENTS = Edit(
    "metadata/ledgers/ledger_metadata.py",
    "            if start < self.last_fragment.first_entry_id:\n"
    "                raise InvalidTransitionError(\n"
    '                    self.ledger_id, "recovery may not change a fragment before the'
    ' last one"\n'
    "                )\n",
    "",
)

BUGS = (
    SeededBug(
        "ledger-ended-by-one-negative",
        "The first bookie that does not have an entry ends the ledger.",
        ("7.3",),
        (
            Edit(
                READ,
                "        return chunk.verdict(negatives_needed(self._quorum), prefers_found="
                "prefers_found)\n",
                "        return chunk.verdict(1, prefers_found=prefers_found)\n",
            ),
        ),
        (model("trio, recovery, AQ 1"),),
    ),
    SeededBug(
        "ledger-ended-by-a-majority-of-negatives",
        "A majority of the write set that does not have an entry ends the ledger, even if the ack"
        " quorum is 1.",
        ("7.3",),
        (
            Edit(
                COPIES,
                "    return quorum.write_quorum - quorum.ack_quorum + 1\n",
                "    return quorum.write_quorum // 2 + 1\n",
            ),
        ),
        (model("trio, recovery, AQ 1"),),
    ),
    SeededBug(
        "unknown-counted-as-a-negative",
        "A bookie that answers UNKNOWN for an entry counts as one that never had it.",
        ("3.2", "7.3"),
        (
            Edit(
                READ,
                "NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)\n",
                "NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER,"
                " Status.UNKNOWN)\n",
            ),
        ),
        (model("pair, recovery, restart"),),
    ),
    SeededBug(
        "timeout-counted-as-a-negative",
        "A bookie that did not answer counts as one that never had the entry.",
        ("3.2", "7.3"),
        (
            Edit(
                READ,
                "        answer = _PointAnswer(event.first_entry_id, Status.UNKNOWN,"
                " event.reason)\n"
                "        return self._record(",
                "        missing = Status.NO_SUCH_ENTRY\n"
                "        answer = _PointAnswer(event.first_entry_id, missing, event.reason)\n"
                "        return self._record(",
            ),
        ),
        (model("pair, recovery, restart"),),
    ),
    SeededBug(
        "negative-counted-for-later-entries",
        "A bookie's answer that an entry is missing counts for the entries after it too.",
        ("7.3",),
        (
            Edit(
                READ,
                "if (a := self._answers.get(b)) and a.entry_id == self.next]\n",
                "if (a := self._answers.get(b)) and a.entry_id <= self.next]\n",
            ),
        ),
        (model("trio, 2 entries, recovery, random"),),
    ),
    SeededBug(
        "recovery-started-one-entry-late",
        "The first entry after the LAC counts as confirmed, and recovery does not read it.",
        ("7.3",),
        (
            Edit(
                FENCE,
                "        return EntryId(self._lac + 1)\n",
                "        return EntryId(self._lac + 2)\n",
            ),
        ),
        (
            model("trio, recovery, AQ 1"),
            simulation("recoveries"),
        ),
    ),
    SeededBug(
        "recovery-started-below-the-last-fragment",
        "If no bookie reports a LAC, recovery starts in an older fragment, and reads it from the"
        " bookies of the last one.",
        ("7.3",),
        (
            Edit(
                FENCE,
                "        self._lac = EntryId(fragment.first_entry_id - 1)\n",
                "        self._lac = EntryId(-1)\n",
            ),
            Edit(
                READ,
                '        assert start >= fragment.first_entry_id, "older fragments are never'
                ' recovered"\n',
                "",
            ),
            NO_GUARD_OF_OLDER_FRAGMENTS,
        ),
        (model("writer, 2 changes, unknown, repair"),),
        masked_by="7.3, 7.5: an assertion at the start of reading, and a check at the close",
    ),
    SeededBug(
        "recovery-ended-after-a-full-chunk",
        "A recovery that finds a chunk of 1,024 entries complete takes its end for the end of the"
        " ledger.",
        ("7.3",),
        (
            Edit(
                READ,
                "        if chunk is None:\n            return None\n        prefers_found",
                "        if chunk is None:\n"
                "            is_wide = self._chunk_entries() == CHUNK_ENTRIES\n"
                "            is_read = is_wide and self._taken > self.start\n"
                "            return Ended(self._next_chunk) if is_read else None\n"
                "        prefers_found",
            ),
        ),
        (simulation("in_sync"),),
    ),
)

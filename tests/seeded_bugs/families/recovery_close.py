"""Seeded bugs of a recovery after its reads: writing back and closing.

Leaves fencing and reading to `recovery`.

Source: protocol rules 7.4 and 7.5; BookKeeper #355, #581, and the change 5d69fdd of its TLA+
specification.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, model, simulation

RECOVERER = "ledger_client/recovery/recoverer.py"
NO_GUARD_OF_OLDER_FRAGMENTS = Edit(
    "metadata/ledgers/ledger_metadata.py",
    "            if start < self.last_fragment.first_entry_id:\n"
    "                raise InvalidTransitionError(\n"
    '                    self.ledger_id, "recovery may not change a fragment before the'
    ' last one"\n'
    "                )\n",
    "",
)
RECOVERY = "ledger_client/protocol/recovery.py"
WRITE = "ledger_client/protocol/recovery_write.py"
LAC_ADVANCES = (
    Edit(
        WRITE,
        "            self._pending[first] = _PendingSpan(span, positions)\n",
        "            self._pending[first] = _PendingSpan(span, positions)\n"
        "            confirmed = EntryId(self.first_pending_entry_id - 1)\n",
    ),
    Edit(
        WRITE,
        "                WriteBack(bookie_id, span, self._lac)\n                for",
        "                WriteBack(bookie_id, span, confirmed)\n                for",
    ),
)
CLOSED_FROM_IN_RECOVERY = (
    Edit(
        "ledger_client/protocol/append.py",
        "        if stored.state is not LedgerState.OPEN:\n",
        "        is_open = stored.state is LedgerState.OPEN\n"
        "        may_close = self._close_token and stored.state is LedgerState.IN_RECOVERY\n"
        "        if not is_open and not may_close:\n",
    ),
    Edit(
        "metadata/ledgers/ledger_metadata.py",
        '        """Close at the writer\'s LAC (rule 6.1). Raises InvalidTransitionError unless'
        ' OPEN."""\n        self._require(LedgerState.OPEN)\n',
        '        """Close at the writer\'s LAC."""\n',
    ),
)

BUGS = (
    SeededBug(
        "recovery-ensemble-stored-before-its-entries",
        "A replacement that recovery chose is stored at once, before it holds the acknowledged"
        " entries; another recovery then trusts its negatives.",
        ("7.4", "7.5"),
        (
            Edit(
                RECOVERER,
                "            self._dispatch(e.ReplacementsChosen(chosen))\n",
                "            self._dispatch(e.ReplacementsChosen(chosen))\n"
                "            self._tasks.start(self._store_early())\n\n"
                "    async def _store_early(self) -> None:\n"
                "        writing = self._protocol._writing\n"
                "        metadata, version = await self._metadata_now()\n"
                "        if metadata.state is LedgerState.CLOSED or writing is None:\n"
                "            return\n"
                "        opened = writing.changed_fragments()\n"
                "        if not opened:\n"
                "            return\n"
                "        first = opened[0].first_entry_id\n"
                "        kept = tuple(f for f in metadata.fragments if f.first_entry_id < first)\n"
                "        token = UpdateToken(self._rng.randbytes(UPDATE_TOKEN_BYTES))\n"
                "        early = replace(metadata, fragments=kept + opened, update_token=token)\n"
                "        try:\n"
                "            await self._ledgers.compare_and_set(early, version)\n"
                "        except MetadataError:\n"
                "            return\n",
            ),
            Edit(
                RECOVERER,
                "from collections.abc import Awaitable, Callable\n",
                "from collections.abc import Awaitable, Callable\n"
                "from dataclasses import replace\n",
            ),
            Edit(
                RECOVERER,
                "from metadata.ledgers.ledger_metadata import LedgerMetadata\n",
                "from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState\n",
            ),
            Edit(
                RECOVERY,
                "        if stored.state is not LedgerState.IN_RECOVERY or not same_last:\n",
                "        if stored.state is not LedgerState.IN_RECOVERY and same_last:\n",
            ),
            NO_GUARD_OF_OLDER_FRAGMENTS,
        ),
        (simulation("recoveries"),),
        masked_by="7.5: no client closes over a last fragment that changed",
    ),
    SeededBug(
        "write-back-skipped",
        "Entries found on one bookie count as recovered without being copied.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "            self._pending[first] = _PendingSpan(span, positions)\n"
                "            actions += [\n",
                "            actions += [] and [\n",
            ),
        ),
        (
            model("pair, recovery, at once"),
            simulation("recoveries"),
        ),
    ),
    SeededBug(
        "lac-advanced-during-write-back",
        "Entries are written back with a LAC that grows; another recovery may still end the ledger"
        " before them, after a reader saw them.",
        ("7.4",),
        LAC_ADVANCES,
        (model("trio, 2 entries, recovery, random"),),
    ),
    SeededBug(
        "ledger-closed-by-its-writer-during-recovery",
        "A writer closes a ledger that is in recovery at its own LAC, while the LAC of write-backs"
        " grows: a reader saw entries that the closed ledger does not have.",
        ("1.5", "6.1", "7.4"),
        (*CLOSED_FROM_IN_RECOVERY, *LAC_ADVANCES),
        (model("trio, 2 entries, recovery, random"),),
        masked_by="7.4: the LAC of write-backs is frozen",
    ),
    SeededBug(
        "bookie-replaced-in-the-whole-last-fragment",
        "A replacement takes the failed bookie's place in the complete last fragment, including"
        " entries that were confirmed long before and are not copied to it.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "        first = self.first_pending_entry_id\n        if self._fragments[-1]",
                "        first = self._original.first_entry_id\n        if self._fragments[-1]",
            ),
        ),
        (model("pair, 2 entries, silence"),),
    ),
    SeededBug(
        "answers-of-a-replaced-bookie-counted-in-recovery",
        "Entries that a replaced bookie stored count as copies on the recovery ensemble.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "        return sum(ensemble[p] in self.stored_at for p in self.positions)\n",
                "        return max(len(frozenset(self.stored_at)), 0 * len(ensemble))\n",
            ),
        ),
        (model("pair, recovery, silence"),),
    ),
    SeededBug(
        "resend-skipped-in-recovery",
        "Entries that lack their ack quorum are not sent to a replacement: none is lost, but"
        " recovery never ends.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "        return resent + self._choose()\n",
                "        return resent[:0] + self._choose()\n",
            ),
        ),
        (
            model("pair, recovery, silence"),
            simulation("recoveries"),
        ),
    ),
    SeededBug(
        "repair-undone-by-a-recovery-close",
        "The close stores older fragments as they were when recovery began.",
        ("7.5",),
        (
            Edit(
                RECOVERY,
                "        return [e.StoreClosed(stored, version, recovered, last_entry_id,"
                " writing.length)]\n",
                "        stale = replace(stored, fragments=started.fragments)\n"
                "        return [e.StoreClosed(stale, version, recovered, last_entry_id,"
                " writing.length)]\n",
            ),
            Edit(
                RECOVERY,
                "from enum import Enum, auto\n",
                "from dataclasses import replace\nfrom enum import Enum, auto\n",
            ),
        ),
        (model("pair, change, recovery, repair"),),
    ),
    SeededBug(
        "second-of-two-recoveries-failed",
        "A recovery whose close comes second fails instead of adopting the first one's end.",
        ("7.5",),
        (
            Edit(
                RECOVERY,
                "        if metadata.state is LedgerState.CLOSED:\n"
                "            return self._finish(metadata, version)\n"
                "        match",
                "        if metadata.state is LedgerState.CLOSED:\n"
                "            if self._stage is _Stage.CLOSING:\n"
                "                return self._fail(e.FragmentsChanged())\n"
                "            return self._finish(metadata, version)\n"
                "        match",
            ),
        ),
        (model("pair, two recoveries"),),
    ),
    SeededBug(
        "length-wrong-after-recovery",
        "The length at a recovery's close leaves out entries that were confirmed before it began.",
        ("7.5",),
        (
            Edit(
                RECOVERY,
                "self._reader.start, length_before)\n",
                "self._reader.start, 0 * length_before)\n",
            ),
        ),
        (
            model("pair, 2 entries, recovery, LACs"),
            simulation("recoveries"),
        ),
    ),
    SeededBug(
        "write-back-refused-for-its-lac",
        "A bookie refuses the write-back of an entry that it has, because its LAC differs from the"
        " writer's: recovery never ends.",
        ("4.2", "4.3"),
        (
            Edit(
                "bookie/storage/overlapping.py",
                "    return (\n        stored.lengths[mine]",
                "    return (\n        ours.lac == theirs.lac\n        and stored.lengths[mine]",
            ),
        ),
        (model("pair, 2 entries, recovery, LACs"),),
    ),
)

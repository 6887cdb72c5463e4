"""Ways to be wrong for a recovery: fencing, reading, writing back and closing.

Leaves how a bookie keeps its fence to `bookie_fences`.

Source: protocol section 7; BookKeeper #2614, #2615, #355, #365, #581, #1067,
and the change 5d69fdd of its TLA+ specification.
"""

from tests.seeded_bugs.seeded_bug import (
    RECOVERY_HISTORIES,
    SCENARIOS,
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    model,
    simulation,
    units,
)

FENCE = "ledger_client/protocol/recovery_fence.py"
QUORUM = "ledger_client/protocol/quorum.py"
READ = "ledger_client/protocol/recovery_read.py"
RECOVERER = "ledger_client/recoverer.py"
RECOVERY = "ledger_client/protocol/recovery.py"
RECOVERER_TESTS = "tests/unit/ledger_client/test_recoverer.py"
WRITE = "ledger_client/protocol/recovery_write.py"

EVERYTHING = (units(RECOVERY_HISTORIES, SCENARIOS), model(), simulation())
READS_DO_NOT_FENCE = Edit(
    RECOVERER,
    "        request = ReadEntries(self._ledger_id, first, last, config.read_bytes_max,"
    " fence=True)\n",
    "        request = ReadEntries(self._ledger_id, first, last, config.read_bytes_max,"
    " fence=False)\n",
)
NO_GUARD_OF_OLDER_FRAGMENTS = Edit(
    "metadata/ledger_metadata.py",
    "            if start < self.last_fragment.first_entry_id:\n"
    "                raise InvalidTransitionError(\n"
    '                    self.ledger_id, "recovery may change nothing below the last'
    ' fragment"\n'
    "                )\n",
    "",
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
        "metadata/ledger_metadata.py",
        '        """Close at the writer\'s LAC (rule 6.1). Raises InvalidTransitionError unless'
        ' OPEN."""\n        self._require(LedgerState.OPEN)\n',
        '        """Close at the writer\'s LAC."""\n',
    ),
)
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
"""Each span goes out with what was written back by then, not with the LAC at the start."""

BUGS = (
    SeededBug(
        "recovery_reads_do_not_fence",
        "A recovery read leaves the bookie that it reaches open for the writer's adds.",
        ("7.3",),
        (READS_DO_NOT_FENCE,),
        (
            units(
                f"{RECOVERER_TESTS}::test_every_recovery_read_fences_also_where_the_fence_was_lost"
            ),
            simulation(),
        ),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "one_fence_is_enough",
        "Recovery goes on after a single bookie has fenced, and its reads do not fence either.",
        ("3.2", "7.2", "7.3"),
        (
            Edit(
                FENCE,
                "        return covers(self._quorum, self.known_positions)\n",
                "        return len(self.known_positions) >= 1 or covers(self._quorum, ())\n",
            ),
            READS_DO_NOT_FENCE,
        ),
        EVERYTHING,
        masked_by="7.3: every recovery read fences",
    ),
    SeededBug(
        "majority_instead_of_coverage",
        "A majority of the ensemble is taken for coverage of every write set, and recovery reads"
        " do not fence.",
        ("3.2", "7.2", "7.3"),
        (
            Edit(
                QUORUM,
                "    size = quorum.ensemble_size\n    return all(\n",
                "    size = quorum.ensemble_size\n    return len(known_positions) > size // 2"
                " or all(\n",
            ),
            READS_DO_NOT_FENCE,
        ),
        (units("tests/unit/ledger_client/test_quorum.py"), *EVERYTHING[1:]),
        masked_by="7.3: every recovery read fences",
    ),
    SeededBug(
        "one_negative_ends_the_ledger",
        "The first bookie that does not have an entry ends the ledger.",
        ("7.3",),
        (
            Edit(
                READ,
                "        return chunk.verdict(negatives_needed(self._quorum)) if chunk else None\n",
                "        needed = min(1, negatives_needed(self._quorum))\n"
                "        return chunk.verdict(needed) if chunk else None\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "majority_of_negatives_ends_the_ledger",
        "A majority of the write set that does not have an entry ends the ledger, also where one"
        " store acknowledges.",
        ("7.3",),
        (
            Edit(
                QUORUM,
                "    return quorum.write_quorum - quorum.ack_quorum + 1\n",
                "    return quorum.write_quorum // 2 + 1\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "unknown_is_a_negative",
        "A bookie that does not know whether it had an entry counts as one that never had it.",
        ("3.2", "7.3"),
        (
            Edit(
                READ,
                "NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)\n",
                "NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER,"
                " Status.UNKNOWN)\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "a_timeout_is_a_negative",
        "A bookie that could not be asked counts as one that never had the entry.",
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
        EVERYTHING,
    ),
    SeededBug(
        "a_negative_counts_for_later_entries",
        "What a bookie said of one missing entry is taken for its word on those behind it.",
        ("7.3",),
        (
            Edit(
                READ,
                "if (a := self._answers.get(b)) and a.entry_id == self.next]\n",
                "if (a := self._answers.get(b)) and a.entry_id <= self.next]\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "recovery_starts_one_too_late",
        "The first entry behind the LAC is taken for confirmed, and not looked for.",
        ("7.3",),
        (
            Edit(
                FENCE,
                "        return EntryId(self._lac + 1)\n",
                "        return EntryId(self._lac + 2)\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "recovery_below_the_last_fragment",
        "Where no bookie tells a LAC, recovery starts in an older fragment, and reads it from the"
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
        EVERYTHING,
        masked_by="7.3, 7.5: an assertion where reading starts, and a check at the close",
    ),
    SeededBug(
        "recovery_ensembles_stored_early",
        "A replacement that recovery chose is stored at once, before it holds what was"
        " acknowledged; another recovery then believes its negatives.",
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
                "from metadata.ledger_metadata import LedgerMetadata\n",
                "from metadata.ledger_metadata import LedgerMetadata, LedgerState\n",
            ),
            Edit(
                RECOVERY,
                "        if stored.state is not LedgerState.IN_RECOVERY or not same_last:\n",
                "        if stored.state is not LedgerState.IN_RECOVERY and same_last:\n",
            ),
            NO_GUARD_OF_OLDER_FRAGMENTS,
        ),
        (units(f"{RECOVERER_TESTS}", SCENARIOS), simulation()),
        (hidden_from_model("the patch is in the shell, which alone may store"),),
        masked_by="7.5: nobody closes over a last fragment that changed",
    ),
    SeededBug(
        "write_back_skipped",
        "Entries that were found on one bookie are taken for recovered without being copied.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "            self._pending[first] = _PendingSpan(span, positions)\n"
                "            actions += [\n",
                "            actions += [] and [\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "lac_advances_in_write_back",
        "Entries are written back with a LAC that grows; another recovery may still end the ledger"
        " before them, after a reader saw them.",
        ("7.4",),
        LAC_ADVANCES,
        EVERYTHING,
    ),
    SeededBug(
        "closed_from_in_recovery",
        "A writer closes a ledger that is in recovery at its own LAC, while the LAC of write-backs"
        " grows: a reader saw entries that the closed ledger does not have.",
        ("1.5", "6.1", "7.4"),
        (*CLOSED_FROM_IN_RECOVERY, *LAC_ADVANCES),
        EVERYTHING,
        masked_by="7.4: the LAC that goes along with write-backs is frozen",
    ),
    SeededBug(
        "whole_last_fragment_replaced",
        "A replacement takes the failed bookie's place for the whole last fragment, also for"
        " entries that were confirmed long before and are not copied to it.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "        first = self.first_pending_entry_id\n        if self._fragments[-1]",
                "        first = self._original.first_entry_id\n        if self._fragments[-1]",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "answers_of_the_replaced_counted_in_recovery",
        "What a replaced bookie stored counts as a copy on the recovery ensemble.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "        return sum(ensemble[p] in self.stored_at for p in self.positions)\n",
                "        return max(len(frozenset(self.stored_at)), 0 * len(ensemble))\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "resend_skipped_in_recovery",
        "A replacement is not sent what lacks its ack quorum: safe, but recovery never ends.",
        ("7.4",),
        (
            Edit(
                WRITE,
                "        return resent + self._choose()\n",
                "        return resent[:0] + self._choose()\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "recovery_close_undoes_a_repair",
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
        EVERYTHING[:2],
        (hidden_from_simulation("nothing repairs yet, so no older fragment changes meanwhile"),),
    ),
    SeededBug(
        "the_loser_of_two_recoveries_fails",
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
        EVERYTHING,
    ),
    SeededBug(
        "wrong_length_after_recovery",
        "The length at a recovery's close leaves out what was confirmed before it began.",
        ("7.5",),
        (
            Edit(
                RECOVERY,
                "self._reader.start, length_before)\n",
                "self._reader.start, 0 * length_before)\n",
            ),
        ),
        EVERYTHING,
    ),
    SeededBug(
        "write_back_refused_for_its_lac",
        "A bookie refuses the write-back of an entry that it has, because its LAC differs from the"
        " writer's: recovery is stuck for ever.",
        ("4.2", "4.3"),
        (
            Edit(
                "bookie/overlapping.py",
                "    return (\n        stored.lengths[mine]",
                "    return (\n        ours.lac == theirs.lac\n        and stored.lengths[mine]",
            ),
        ),
        (
            units(
                "tests/unit/bookie/test_storage.py::test_repeated_entries_are_compared",
                RECOVERER_TESTS,
            ),
            simulation(),
        ),
        (hidden_from_model("the model's bookies compare nothing"),),
    ),
)

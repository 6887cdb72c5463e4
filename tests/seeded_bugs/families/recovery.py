"""Seeded bugs of a recovery while it fences and reads.

Leaves how a bookie keeps its fence to `bookie_fences`, and what follows to `recovery_close`.

Source: protocol rules 7.1-7.3; BookKeeper #2614, #2615, #365, #1067.
"""

from tests.seeded_bugs.seeded_bug import (
    RECOVERY_HISTORIES,
    SCENARIOS,
    SHELL_ONLY,
    Detector,
    Edit,
    SeededBug,
    hidden_from_model,
    model,
    simulation,
    units,
)

FENCE = "ledger_client/protocol/recovery_fence.py"
QUORUM = "ledger_client/protocol/quorum.py"
READ = "ledger_client/protocol/recovery_read.py"
RECOVERER = "ledger_client/recovery/recoverer.py"
RECOVERER_TESTS = "tests/unit/ledger_client/recovery/test_recoverer.py"

RECOVERY_RULES = units(RECOVERY_HISTORIES, SCENARIOS)
READS_FENCE_IN_THE_MODEL = hidden_from_model(
    "masked by 7.3 there, since the shell makes recovery reads fence; the model's own list breaks"
    " both together"
)


def everything(configuration: str) -> tuple[Detector, ...]:
    """Look everywhere; in the model, in one configuration."""
    return RECOVERY_RULES, model(configuration), simulation("recoveries")


READS_DO_NOT_FENCE = Edit(
    RECOVERER,
    "        request = ReadEntries(self._ledger_id, first, last, config.read_bytes_max,"
    " fence=True)\n",
    "        request = ReadEntries(self._ledger_id, first, last, config.read_bytes_max,"
    " fence=False)\n",
)
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
        "recovery_reads_do_not_fence",
        "A recovery read does not stop the bookie from accepting the writer's adds.",
        ("7.3",),
        (READS_DO_NOT_FENCE,),
        (
            units(f"{RECOVERER_TESTS}::test_every_recovery_read_fences_even_if_the_fence_was_lost"),
            simulation("recoveries"),
        ),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "one_fence_is_enough",
        "A recovery continues after a single bookie has fenced, and its reads do not fence either.",
        ("3.2", "7.2", "7.3"),
        (
            Edit(
                FENCE,
                "        return covers(self._quorum, self.known_positions)\n",
                "        return len(self.known_positions) >= 1 or covers(self._quorum, ())\n",
            ),
            READS_DO_NOT_FENCE,
        ),
        (RECOVERY_RULES, simulation("recoveries")),
        (READS_FENCE_IN_THE_MODEL,),
        masked_by="7.3: every recovery read fences",
    ),
    SeededBug(
        "majority_instead_of_coverage",
        "A majority of the ensemble counts as coverage of every write set, and recovery reads do"
        " not fence.",
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
        (units("tests/unit/ledger_client/protocol/test_quorum.py"), simulation("recoveries")),
        (READS_FENCE_IN_THE_MODEL,),
        masked_by="7.3: every recovery read fences",
    ),
    SeededBug(
        "one_negative_ends_the_ledger",
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
        everything("trio, recovery, AQ 1"),
    ),
    SeededBug(
        "majority_of_negatives_ends_the_ledger",
        "A majority of the write set that does not have an entry ends the ledger, even if the ack"
        " quorum is 1.",
        ("7.3",),
        (
            Edit(
                QUORUM,
                "    return quorum.write_quorum - quorum.ack_quorum + 1\n",
                "    return quorum.write_quorum // 2 + 1\n",
            ),
        ),
        everything("trio, recovery, AQ 1"),
    ),
    SeededBug(
        "unknown_is_a_negative",
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
        everything("pair, recovery, restart"),
    ),
    SeededBug(
        "a_timeout_is_a_negative",
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
        everything("pair, recovery, restart"),
    ),
    SeededBug(
        "a_negative_counts_for_later_entries",
        "A bookie's answer that an entry is missing counts for the entries after it too.",
        ("7.3",),
        (
            Edit(
                READ,
                "if (a := self._answers.get(b)) and a.entry_id == self.next]\n",
                "if (a := self._answers.get(b)) and a.entry_id <= self.next]\n",
            ),
        ),
        everything("trio, 2 entries, recovery, random"),
    ),
    SeededBug(
        "recovery_starts_one_too_late",
        "The first entry after the LAC counts as confirmed, and recovery does not read it.",
        ("7.3",),
        (
            Edit(
                FENCE,
                "        return EntryId(self._lac + 1)\n",
                "        return EntryId(self._lac + 2)\n",
            ),
        ),
        everything("trio, recovery, AQ 1"),
    ),
    SeededBug(
        "recovery_below_the_last_fragment",
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
        everything("writer, 2 changes, unknown, repair"),
        masked_by="7.3, 7.5: an assertion at the start of reading, and a check at the close",
    ),
)

"""Seeded bugs of the writer of an open ledger: append, ensemble change and close.

Leaves what goes wrong between the writer and the metadata service to `metadata`.

Source: protocol sections 4-6; BookKeeper #1591, #3005, #4097, #4261, #826, #1857.
"""

from tests.seeded_bugs.seeded_bug import (
    APPEND_HISTORIES,
    SCENARIOS,
    SHELL_ONLY,
    Detector,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    model,
    simulation,
    units,
)

ACKS = "ledger_client/protocol/acks.py"
APPEND = "ledger_client/protocol/append.py"
FALSE_FENCES = "tests/unit/ledger_client/writing/test_false_fences.py"
WRITER_HISTORIES = units(APPEND_HISTORIES, SCENARIOS)


def everything(configuration: str) -> tuple[Detector, ...]:
    """Look everywhere; in the model, in one configuration."""
    return WRITER_HISTORIES, model(configuration), simulation("changes")


BUGS = (
    SeededBug(
        "one_store_acknowledges",
        "An entry is confirmed when a single bookie has stored it, whatever the ack quorum is.",
        ("4.5",),
        (
            Edit(
                ACKS,
                "        needed = self._quorum.ack_quorum\n        moved = False\n",
                "        needed = 1\n        moved = False\n",
            ),
        ),
        everything("pair, recovery, at once"),
    ),
    SeededBug(
        "confirmed_out_of_order",
        "The LAC skips entries that lack their ack quorum and moves to a later one that has it.",
        ("4.5",),
        (
            Edit(
                ACKS,
                "        while self._unconfirmed and"
                " self._unconfirmed[0].stored.bit_count() >= needed:\n",
                "        while any(b.stored.bit_count() >= needed for b in self._unconfirmed):\n",
            ),
        ),
        everything("writer, striped 3/2/2, 3 entries"),
    ),
    SeededBug(
        "confirmed_during_a_change",
        "Entries are confirmed during an ensemble change, so that the new fragment starts before"
        " entries that were acknowledged on the old one.",
        ("5.2",),
        (
            Edit(
                APPEND,
                "if self._is_steady and not self.lacks_in_sync and self._pending.confirm():",
                "if self._phase is _Phase.OPEN and self._pending.confirm():",
            ),
        ),
        everything("writer, striped 3/2/2, 3 entries"),
    ),
    SeededBug(
        "fence_by_mistake_ends_the_writer",
        "A FENCED answer ends the writer without a read of the metadata, although no recovery may"
        " have begun.",
        ("4.7",),
        (
            Edit(
                APPEND,
                "        kind = FailureKind.FENCED if status is Status.FENCED else"
                " FailureKind.GONE\n",
                "        if status is Status.FENCED:\n"
                "            return self._end(errors.fenced(self._metadata))\n"
                "        kind = FailureKind.GONE\n",
            ),
        ),
        (units(SCENARIOS, FALSE_FENCES), model("pair, damage, recovery")),
        (
            hidden_from_simulation(
                "a member that dies is replaced, or ends the writer, before it returns with the"
                " fences that follow a loss of data"
            ),
        ),
    ),
    SeededBug(
        "stale_read_after_a_fence",
        "The read after a FENCED answer may miss the newest changes: the fence of a recovery counts"
        " as a mistake.",
        ("4.7",),
        (
            Edit(
                "ledger_client/writing/append_shell.py",
                "await ledgers.get(ledger_id, fresh=True))\n",
                "await ledgers.get(ledger_id))\n",
            ),
        ),
        (units(f"{FALSE_FENCES}::test_the_read_is_fresh"),),
        (
            SHELL_ONLY,
            hidden_from_simulation(
                "the compare-and-set of the change that follows fails, and its own read is repeated"
            ),
        ),
    ),
    SeededBug(
        "metadata_after_resend",
        "Entries are sent to the new ensemble, and confirmed by it, before the metadata that names"
        " it is stored.",
        ("4.4", "5.2"),
        (
            Edit(
                APPEND,
                "        return self._store(metadata.with_ensemble_change("
                "first, ensemble, token))\n",
                "        changed = metadata.with_ensemble_change(first, ensemble, token)\n"
                "        self._take_metadata(changed, self._version)\n"
                "        sent = self._adopt(metadata, changed)\n"
                "        return [*sent, *self._store(changed)]\n",
            ),
            Edit(
                APPEND,
                "if self._is_steady and not self.lacks_in_sync and self._pending.confirm():",
                "if self._phase is _Phase.OPEN and not self._choosing and self._pending.confirm():",
            ),
        ),
        everything("writer, striped 3/2/2, 3 entries"),
        masked_by="5.2: no entry is confirmed during a change",
    ),
    SeededBug(
        "answers_of_the_replaced_counted",
        "Entries that a replaced bookie stored still count for its replacement.",
        ("4.4", "5.2"),
        (
            Edit(
                ACKS,
                "            batch.stored = _moved(batch.stored, sources)\n",
                "            batch.stored = batch.stored\n",
            ),
        ),
        everything("writer, striped 3/2/2, 3 entries"),
    ),
    SeededBug(
        "late_answers_dropped",
        "Answers that arrive during an ensemble change are dropped, although the entries are not"
        " sent again.",
        ("4.6", "5.2"),
        (
            Edit(
                APPEND,
                "        if position is None or not self._pending.record(first, position):\n",
                "        if position is None or self.is_changing or not"
                " self._pending.record(first, position):\n",
            ),
        ),
        everything("writer, striped 3/2/2, 3 entries"),
    ),
    SeededBug(
        "answers_after_confirmation_dropped",
        "Answers for confirmed entries are dropped, so that no entry is ever known to be on its"
        " complete write quorum.",
        ("4.6",),
        (
            Edit(
                ACKS,
                "        if batch is None or not batch.write_set"
                " & ~batch.stored & ~batch.lost & bit:\n",
                "        if batch is None or batch in self._confirmed or not batch.write_set"
                " & ~batch.stored & ~batch.lost & bit:\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/protocol/test_acks.py",
                "tests/unit/ledger_client/test_client.py::test_append_close_and_read",
                SCENARIOS,
            ),
            simulation("changes"),
        ),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "resend_skipped",
        "Pending entries are not sent to the new members of an ensemble: no entry is lost, but the"
        " writer hangs.",
        ("5.2",),
        (
            Edit(
                APPEND,
                "        actions += self._send_missing()\n        actions += self._advance()\n",
                "        actions += self._advance()\n",
            ),
        ),
        everything("writer, striped 3/2/2, 3 entries"),
    ),
    SeededBug(
        "empty_difference_hangs",
        "A change that replaced no bookie ends without confirming the entries stored during it.",
        ("5.2",),
        (
            Edit(
                APPEND,
                "        if self._close_token is not None:\n"
                "            return actions + self._store_close()\n"
                "        actions += self._send_missing()\n",
                "        if self._close_token is not None:\n"
                "            return actions + self._store_close()\n"
                "        if None not in sources:\n"
                "            return actions\n"
                "        actions += self._send_missing()\n",
            ),
            Edit(
                APPEND,
                "        return self._begin_change() or"
                " [*self._send_missing(), *self._advance()]\n",
                "        return self._begin_change()\n",
            ),
            Edit(
                APPEND,
                "        self._health.park(self._ensemble)\n"
                "        return [*self._send_missing(), *self._advance()]\n",
                "        self._health.park(self._ensemble)\n        return []\n",
            ),
        ),
        (WRITER_HISTORIES, simulation("changes")),
        (
            hidden_from_model(
                "the placement answers at once: no answers gather during the choice of a writer"
                " that replaces no bookie"
            ),
        ),
    ),
    SeededBug(
        "new_fragment_at_lap_plus_1",
        "A new fragment starts after the last entry sent, not after the last one confirmed.",
        ("5.1",),
        (
            Edit(
                APPEND,
                "        first = EntryId(self._pending.lac + 1)\n",
                "        first = EntryId(self._pending.lap + 1)\n",
            ),
        ),
        everything("writer, striped 3/2/2, 3 entries"),
    ),
    SeededBug(
        "failure_during_a_change_forgotten",
        "A bookie that fails during a change is not replaced by the next change, and its entries"
        " are not sent again.",
        ("5.3",),
        (
            Edit(
                APPEND,
                "        if self._position(bookie_id) is None:\n"
                "            return []  # rule 5.3\n",
                "        if self._position(bookie_id) is None or self.is_changing:\n"
                "            return []\n",
            ),
        ),
        everything("writer, 2 changes, unknown, repair"),
    ),
    SeededBug(
        "conflict_adopted_without_resending",
        "A conflict that shows the writer's own earlier change is adopted, but no entries are sent"
        " to its new bookies.",
        ("1.4", "5.2"),
        (
            Edit(
                APPEND,
                "        return self._adopt(base, stored)\n\n    def _metadata_seen",
                "        if isinstance(event, e.MetadataConflicted):\n"
                "            self._health.keep_only(stored.last_fragment.ensemble)\n"
                "            return self._advance()\n"
                "        return self._adopt(base, stored)\n\n    def _metadata_seen",
            ),
        ),
        (WRITER_HISTORIES, model("writer, 2 changes, unknown, repair")),
        (
            hidden_from_simulation(
                "the ledger store recognises its own change by its token, so the protocol never"
                " meets it"
            ),
        ),
    ),
    SeededBug(
        "close_beyond_the_lac",
        "The close stores the last entry sent, not the last one confirmed.",
        ("6.1",),
        (
            Edit(
                APPEND,
                "        closed = self._metadata.with_closed("
                "self._pending.lac, self._pending.length, token)\n",
                "        closed = self._metadata.with_closed("
                "self._pending.lap, self._pending.length, token)\n",
            ),
        ),
        everything("pair, recovery, at once"),
    ),
    SeededBug(
        "wrong_length_at_close",
        "The close stores the length of the entries sent, not of those confirmed.",
        ("6.1",),
        (
            Edit(
                APPEND,
                "        closed = self._metadata.with_closed("
                "self._pending.lac, self._pending.length, token)\n",
                "        length = self._pending._pushed_length\n"
                "        closed = self._metadata.with_closed(self._pending.lac, length, token)\n",
            ),
        ),
        everything("pair, recovery, at once"),
    ),
    SeededBug(
        "confirmed_while_closing",
        "Entries are confirmed after a close with a lower last entry was sent.",
        ("6.1",),
        (
            Edit(
                APPEND,
                "if self._is_steady and not self.lacks_in_sync and self._pending.confirm():",
                "is_closing = self._close_token is not None and self._base is not None\n"
                "        if (self._is_steady or is_closing) and self._pending.confirm():",
            ),
        ),
        everything("pair, recovery, at once"),
    ),
    SeededBug(
        "idle_writer_keeps_a_departed_bookie",
        "A bookie whose registration ends stays in the ensemble of an idle writer.",
        ("5.6",),
        (
            Edit(
                "ledger_client/writing/writer_watch.py",
                "        if bookie_id not in self._shell.protocol.parked:\n",
                "        if bookie_id not in self._shell.protocol.parked"
                " and len(self._shell.outbox):\n",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/test_client.py::"
                "test_a_bookie_that_leaves_the_registration_is_replaced_while_idle"
            ),
            simulation("changes"),
        ),
        (SHELL_ONLY,),
    ),
)

"""Seeded bugs of the writer of an open ledger: append, ensemble change and close.

Leaves what goes wrong between the writer and the metadata service to `metadata`, and in-sync mode
to `in_sync`.

Source: protocol rule 3.3 and sections 4-6; BookKeeper #1591, #3005, #4097, #826, #1857.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, model, simulation

ACKS = "ledger_client/protocol/acks.py"
APPEND = "ledger_client/protocol/append.py"

BUGS = (
    SeededBug(
        "confirmed-by-one-store",
        "An entry is confirmed when a single bookie has stored it, whatever the ack quorum is.",
        ("4.5",),
        (
            Edit(
                ACKS,
                "        needed = self._quorum.ack_quorum\n        moved = False\n",
                "        needed = 1\n        moved = False\n",
            ),
        ),
        (
            model("pair, recovery, at once"),
            simulation("changes"),
        ),
    ),
    SeededBug(
        "confirmed-out-of-order",
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
        (model("writer, striped 3/2/2, 3 entries"),),
    ),
    SeededBug(
        "confirmed-during-an-ensemble-change",
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
        (model("writer, striped 3/2/2, 3 entries"),),
    ),
    SeededBug(
        "writer-ended-by-a-mistaken-fence",
        "A FENCED answer ends the writer without a read of the metadata, although no recovery may"
        " have begun.",
        ("4.7",),
        (
            Edit(
                APPEND,
                "        kind = FailureKind.FENCED if status is Status.FENCED else"
                " FailureKind.GONE\n",
                "        if status is Status.FENCED:\n"
                "            return self._end(e.fenced(self._metadata))\n"
                "        kind = FailureKind.GONE\n",
            ),
        ),
        (model("pair, damage, recovery"),),
    ),
    SeededBug(
        "metadata-stored-after-the-resend",
        "Entries are sent to the new ensemble, and confirmed by it, before the metadata that names"
        " it is stored.",
        ("4.4", "5.2"),
        (
            Edit(
                APPEND,
                "        actions = self._store(metadata.with_ensemble_change("
                "first, ensemble, token))\n"
                "        self._is_ensemble_change = True\n"
                "        return actions\n",
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
        (
            model("writer, striped 3/2/2, 3 entries"),
            simulation("changes"),
        ),
        masked_by="5.2: no entry is confirmed during a change",
    ),
    SeededBug(
        "answers-of-a-replaced-bookie-counted",
        "Entries that a replaced bookie stored still count for its replacement.",
        ("4.4", "5.2"),
        (
            Edit(
                ACKS,
                "            batch.stored = _moved(batch.stored, sources)\n",
                "            batch.stored = batch.stored\n",
            ),
        ),
        (model("writer, striped 3/2/2, 3 entries"),),
    ),
    SeededBug(
        "answers-dropped-during-an-ensemble-change",
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
        (model("writer, striped 3/2/2, 3 entries"),),
    ),
    SeededBug(
        "answers-dropped-after-confirmation",
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
        (simulation("changes"),),
    ),
    SeededBug(
        "resend-skipped-after-an-ensemble-change",
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
        (model("writer, striped 3/2/2, 3 entries"),),
    ),
    SeededBug(
        "fragment-started-after-the-lap",
        "A new fragment starts after the last entry sent, not after the last one confirmed.",
        ("5.1",),
        (
            Edit(
                APPEND,
                "        first = EntryId(self._pending.lac + 1)\n",
                "        first = EntryId(self._pending.lap + 1)\n",
            ),
        ),
        (
            model("writer, striped 3/2/2, 3 entries"),
            simulation("changes"),
        ),
    ),
    SeededBug(
        "failure-forgotten-during-an-ensemble-change",
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
        (model("writer, 2 changes, unknown, repair"),),
    ),
    SeededBug(
        "resend-skipped-after-a-conflict",
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
        (model("writer, 2 changes, unknown, repair"),),
    ),
    SeededBug(
        "close-beyond-the-lac",
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
        (
            model("pair, recovery, at once"),
            simulation("changes"),
        ),
    ),
    SeededBug(
        "length-wrong-at-close",
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
        (model("pair, recovery, at once"),),
    ),
    SeededBug(
        "confirmed-after-the-close-was-sent",
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
        (model("pair, recovery, at once"),),
    ),
    SeededBug(
        "entries-dropped-when-their-batch-cannot-be-made",
        "A writer goes on after an exception left entries with ids and without bytes: the next"
        " entries get the same ids, and confirm the lost ones.",
        ("4.1",),
        (
            Edit(
                "ledger_client/writing/admission.py",
                "            self._shell.end_after(error)\n",
                "            del error\n",
            ),
        ),
        (simulation("recoveries"),),
    ),
)

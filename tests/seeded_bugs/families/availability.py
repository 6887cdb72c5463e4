"""Seeded bugs that end a writer without need, or leave callers waiting; none loses an entry.

Leaves judging errors to `tests.simulation.checkers.availability`.

Source: protocol rules 4.1, 4.3, 4.6, 5.1 and 5.7.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, simulation

APPEND = "ledger_client/protocol/append.py"

BUGS = (
    SeededBug(
        "writer-ended-by-a-full-bookie",
        "A bookie that is read-only ends the writer instead of being replaced.",
        ("4.3", "5.1"),
        (
            Edit(
                APPEND,
                "        if status is Status.BAD_REQUEST and"
                " self._refused_batches.count(first, bookie_id):\n",
                "        if status is Status.READ_ONLY or status is Status.BAD_REQUEST and"
                " self._refused_batches.count(first, bookie_id):\n",
            ),
        ),
        (simulation(),),
    ),
    SeededBug(
        "append-deadline-missing",
        "An append that no bookie answers has no deadline.",
        ("4.6", "5.7"),
        (
            Edit(
                "ledger_client/writing/writer_watch.py",
                "now - oldest > config.append_deadline_s:",
                "now - oldest > 1e9:",
            ),
            Edit(
                "ledger_client/bookies/connection.py",
                "            if now - sent_at < timeout_s:\n",
                "            if now - sent_at < 1e9 * timeout_s:\n",
            ),
            Edit(
                "ledger_client/bookies/connection.py",
                "            if now - self._pinged_at >= PING_TIMEOUT_S:\n",
                "            if now - self._pinged_at >= 1e9 * PING_TIMEOUT_S:\n",
            ),
        ),
        (simulation(),),
        masked_by="a bookie that answers nothing is given up, and then replaced",
    ),
    SeededBug(
        "writer-ended-at-its-second-change",
        "A writer ends with an error at its second ensemble change, as if its ledger had too many"
        " fragments.",
        ("5.1",),
        (
            Edit(
                "ledger_client/protocol/append.py",
                "        if is_new and len(metadata.fragments) >= FRAGMENTS_MAX:\n",
                "        if is_new and len(metadata.fragments) >= 2:\n",
            ),
        ),
        (simulation(),),
    ),
    SeededBug(
        "append-admitted-before-waiting-callers",
        "An append that finds room is admitted before callers that wait: it takes an id in the"
        " middle of the range of an append_many.",
        ("4.1",),
        (
            Edit(
                "ledger_client/writing/outbox.py",
                "        return not self._in_line and self.has_room(payload_bytes)\n",
                "        return self.has_room(payload_bytes)\n",
            ),
        ),
        (simulation("changes"),),
    ),
)

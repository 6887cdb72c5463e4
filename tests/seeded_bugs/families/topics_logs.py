"""Seeded bugs of a partition's log and its leader: committed, visible and kept records.

Leaves transactions and the state of coordinators to `topics_state`.

Source: topics design; protocol rules 1.3, 4.5 and 10.1; KIP-98, KIP-101, KIP-207.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, topics

WRITING = "broker_layer/log/log_appender.py"
ROLLING = "broker_layer/log/ledger_roller.py"
TAKEOVER = "broker_layer/log/log_takeover.py"
CHAIN = "broker_layer/log/ledger_list.py"
MANAGER = "broker_layer/control/partition_manager.py"
OFFSETS = "broker_layer/server/offsets.py"
TOPIC_LOG = "broker_layer/log/topic_log.py"
PRODUCERS = "broker_layer/log/state/producer_state.py"
KEPT = "broker_layer/log/read_ahead.py"

BUGS = (
    SeededBug(
        "batch-acknowledged-before-it-is-stored",
        "A batch is acknowledged when it has its offset, before any bookie has stored it.",
        ("4.5", "KIP-98"),
        (
            Edit(
                WRITING,
                "size, time_ms, answer))\n",
                "size, time_ms, answer))\n"
                "            answer.set_result(self._appended(base, time_ms))\n",
            ),
        ),
        (topics("leaders"),),
    ),
    SeededBug(
        "duplicate-acknowledged-before-the-original",
        "A duplicate of a batch that is not committed yet is acknowledged without waiting for it.",
        ("KIP-98",),
        (
            Edit(
                WRITING,
                "        pending = self._pending.find(duplicate.base_offset)\n",
                "        pending = self._pending.find(-1)\n",
            ),
        ),
        (topics("ledgers"),),
    ),
    SeededBug(
        "batch-committed-before-its-ledger-is-listed",
        "Batches of the next ledger are committed before the old one is closed and the list names"
        " the new one.",
        ("1.3",),
        (
            Edit(
                ROLLING,
                "        return self.writer.last_confirmed if self.is_listed else EntryId(-1)\n",
                "        return self.writer.last_confirmed\n",
            ),
        ),
        (topics("leaders"),),
    ),
    SeededBug(
        "last-batch-left-out-of-the-rebuilt-state",
        "A takeover rebuilds the state from the last state entry on, but without the last batch.",
        ("KIP-98",),
        (
            Edit(
                TAKEOVER,
                "    for entry_id, data in entries[1:]:\n",
                "    for entry_id, data in entries[1:-1]:\n",
            ),
        ),
        (topics("leaders"),),
    ),
    SeededBug(
        "offsets-reassigned-by-a-new-leader",
        "A new leader assigns offsets from the start of the newest ledger, not from its end.",
        ("KIP-101",),
        (
            Edit(
                TAKEOVER,
                "    end_offset = state.next_offset\n",
                "    end_offset = state.next_offset if last is None else last.base_offset\n"
                "    state.next_offset = end_offset\n",
            ),
        ),
        (topics("leaders"),),
    ),
    SeededBug(
        "epoch-claimed-twice",
        "An epoch that was claimed before can be claimed again, by a process that returned.",
        ("KIP-101",),
        (
            Edit(
                CHAIN,
                "            if record.leader_epoch >= epoch:\n",
                "            if record.leader_epoch > epoch:\n",
            ),
            Edit(
                CHAIN,
                "                    key, record.claimed(epoch), version\n",
                "                    key,\n"
                "                    record if record.leader_epoch == epoch"
                " else record.claimed(epoch),\n"
                "                    version,\n",
            ),
        ),
        (topics("leaders"),),
    ),
    SeededBug(
        "partition-served-after-the-session",
        "A broker whose session has lapsed continues to serve partitions that others may lead.",
        ("KIP-207",),
        (
            Edit(
                MANAGER,
                "        if isinstance(log, TopicLog) and log.failure is None"
                " and not self._view.lease.has_lapsed:\n",
                "        if isinstance(log, TopicLog) and log.failure is None:\n",
            ),
        ),
        (topics("zombies"),),
    ),
    SeededBug(
        "latest-offset-not-committed",
        "ListOffsets answers with the end of the log, which may not be committed.",
        ("KIP-207",),
        (
            Edit(
                OFFSETS,
                "    end = log.last_stable_offset if read_committed else log.high_watermark\n",
                "    end = log.last_stable_offset if read_committed else log.log_end_offset\n",
            ),
        ),
        (topics("ledgers"),),
    ),
    SeededBug(
        "ledgers-deleted-before-the-start-moves",
        "Retention deletes ledgers before it moves the start of the log.",
        ("10.1",),
        (
            Edit(
                TOPIC_LOG,
                "        await self._begin_at("
                "retained_from(segments, config, self.log_start_offset, now_ms))\n"
                "        try:\n"
                "            return await self._ledger_list.drop_below("
                "self.log_start_offset, roller.has_state)\n"
                "        except TopicError as error:\n"
                "            raise self._appender.fail(error.text) from error\n",
                "        start = self.log_start_offset\n"
                "        retained = retained_from(segments, config, start, now_ms)\n"
                "        dropped = await self._ledger_list.drop_below(retained, roller.has_state)\n"
                "        await self._begin_at(retained)\n"
                "        return dropped\n",
            ),
        ),
        (topics(),),
    ),
    SeededBug(
        "repeated-batch-appended-again",
        "A repeated batch that is in the log already is appended again.",
        ("KIP-98",),
        (
            Edit(
                PRODUCERS,
                "            verdict = _check_sequence(header, state)\n",
                "            verdict = ACCEPT\n",
            ),
        ),
        (
            topics("leaders"),
            topics("users"),
        ),
    ),
    SeededBug(
        "read-ahead-shown-beyond-the-limit",
        "Batches that a log has read ahead are returned even beyond the reader's limit.",
        ("KIP-98",),
        (
            Edit(
                KEPT,
                "            if batch.last_offset >= limit or (size",
                "            if (size",
            ),
        ),
        (topics("coordinators"),),
    ),
)

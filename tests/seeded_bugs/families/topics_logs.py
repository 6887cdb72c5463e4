"""Seeded bugs of a partition's log and its leader: committed, visible and kept records.

Leaves transactions and the state of coordinators to `topics_state`.

Source: topics design; KIP-98, KIP-101, KIP-207, KIP-360.
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import (
    LEDGERS_ONLY,
    Edit,
    SeededBug,
    hidden_from_simulation,
    topics,
    units,
)

TOPIC_LOG: Final = "broker_layer/log/topic_log.py"
WRITING: Final = "broker_layer/log/appending/log_appender.py"
ROLLING: Final = "broker_layer/log/rolling/ledger_roller.py"
KEPT: Final = "broker_layer/log/reading/kept_batches.py"
TAKEOVER: Final = "broker_layer/log/log_takeover.py"
CHAIN: Final = "broker_layer/log/ledger_list.py"
MANAGER: Final = "broker_layer/control/partition_manager.py"
OFFSETS: Final = "broker_layer/server/offsets.py"
PRODUCERS: Final = "broker_layer/log/state/producer_state.py"
HEALTH: Final = "broker_layer/control/ledger_health.py"
REASSIGNING: Final = "broker_layer/administration/reassignments.py"
NOT_ASKED: Final = hidden_from_simulation("no checker looks at what administrators are shown")

BUGS = (
    SeededBug(
        "acknowledged_when_admitted",
        "A batch is acknowledged when it has its offset, before any bookie has stored it.",
        ("4.5", "KIP-98"),
        (
            Edit(
                WRITING,
                "size, time_ms, answer))\n",
                "size, time_ms, answer))\n"
                "        answer.set_result(self._appended(base, time_ms))\n",
            ),
        ),
        (topics("leaders"),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "duplicate_answered_at_once",
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
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "counts_before_it_is_listed",
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
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "rebuilt_without_the_last_batches",
        "A takeover rebuilds the state from the last state entry on, but without the last batch.",
        ("KIP-98",),
        (
            Edit(
                TAKEOVER,
                "    for entry_id, data in found[1:]:\n",
                "    for entry_id, data in found[1:-1]:\n",
            ),
        ),
        (topics("leaders"),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "offsets_begin_at_the_segment",
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
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "epoch_claimed_twice",
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
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "stale_leader_serves",
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
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "latest_is_the_end_of_the_log",
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
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "start_moves_after_the_deletion",
        "Retention deletes ledgers before it moves the start of the log.",
        ("10.1",),
        (
            Edit(
                TOPIC_LOG,
                "        await self._begin_at("
                "retained_from(segments, config, self.log_start_offset, now_ms))\n"
                "        try:\n"
                "            return await self._ledger_list.drop_below(self.log_start_offset)\n"
                "        except TopicError as error:\n"
                "            raise self._appender.fail(error.text) from error\n",
                "        start = self.log_start_offset\n"
                "        retained = retained_from(segments, config, start, now_ms)\n"
                "        dropped = await self._ledger_list.drop_below(retained)\n"
                "        await self._begin_at(retained)\n"
                "        return dropped\n",
            ),
        ),
        (topics(),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "sequences_are_not_compared",
        "A repeated batch that is in the log already is appended again.",
        ("KIP-98",),
        (
            Edit(
                PRODUCERS,
                "        return _check_sequence(header, state)\n",
                "        return ACCEPT\n",
            ),
        ),
        (units("tests/unit/broker_layer/log/state/test_producer_state.py"), topics("leaders")),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "read_ahead_is_shown_beyond_the_limit",
        "Batches that a log has read ahead are returned even beyond the reader's limit.",
        ("KIP-98",),
        (
            Edit(
                KEPT,
                "            if batch.last_offset >= limit or (size",
                "            if (size",
            ),
        ),
        (
            units(
                "tests/unit/broker_layer/log/reading/test_kept_batches.py",
                "tests/unit/broker_layer/log/reading/test_sequential_reading.py",
            ),
            topics("coordinators"),
        ),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "dropped_from_memory_is_passed_over",
        "Batches that were read ahead and dropped for lack of memory count as returned: records"
        " are left out.",
        ("KIP-74",),
        (
            Edit(
                KEPT,
                "        self.read_offset = self.next_offset\n",
                "",
            ),
        ),
        (
            units(
                "tests/unit/broker_layer/log/reading/test_kept_batches.py",
                "tests/unit/broker_layer/log/reading/test_read_ahead.py",
            ),
        ),
        (
            LEDGERS_ONLY,
            hidden_from_simulation("its logs never fill the memory for what is read ahead"),
        ),
    ),
    SeededBug(
        "least_urgent_job_counts",
        "A ledger with a job that only moves its copies counts as whole, though another job says"
        " that copies are missing.",
        ("9.3",),
        (Edit(HEALTH, "reversed(self._jobs.names)", "tuple(self._jobs.names)"),),
        (units("tests/unit/broker_layer/control/test_ledger_health.py"),),
        (LEDGERS_ONLY, NOT_ASKED),
    ),
    SeededBug(
        "ledger_not_read_again_after_repair",
        "A ledger that was read once is never read again, so it stays short after its repair.",
        ("9.1",),
        (
            Edit(
                HEALTH,
                "            found.may_change |= job is not None or short is not None or is_left\n",
                "            found.may_change |= is_left and job is not None\n",
            ),
        ),
        (units("tests/unit/broker_layer/control/test_ledger_health.py"),),
        (LEDGERS_ONLY, NOT_ASKED),
    ),
    SeededBug(
        "reassigned_leader_not_preferred",
        "A reassignment moves the leader, and the partition later returns to the broker before.",
        ("KIP-455",),
        (
            Edit(
                REASSIGNING,
                "        changed = record.with_preferred({partition: brokers[0]})\n",
                "        changed = record\n",
            ),
        ),
        (units("tests/unit/broker_layer/administration/test_reassignments.py"),),
        (LEDGERS_ONLY, NOT_ASKED),
    ),
)

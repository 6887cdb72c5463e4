"""Seeded bugs of transactions, and of the state of coordinators.

Leaves what is committed in a partition's log to `topics_logs`.

Source: topics design; KIP-98, KIP-360, KIP-447.
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
PARTITION: Final = "broker_layer/log/state/partition_state.py"
INDEX: Final = "broker_layer/log/state/transaction_index.py"
PRODUCERS: Final = "broker_layer/log/state/producer_state.py"
COMMITS: Final = "broker_layer/groups/offsets/offset_commits.py"
COORDINATOR: Final = "broker_layer/groups/coordinator.py"
SHARD: Final = "broker_layer/groups/shard.py"
STATE: Final = "broker_layer/transactions/state_partition.py"
DECISIONS: Final = units("tests/unit/broker_layer/transactions/test_coordinator.py")
RECOVERED_ALL_THE_SAME: Final = hidden_from_simulation(
    "entries sent to the bookies are recovered although their writer died: no seed has lost one"
)

BUGS = (
    SeededBug(
        "committed_reads_to_the_high_watermark",
        "Readers of committed records get records of open transactions below the high watermark.",
        ("KIP-98",),
        (
            Edit(
                TOPIC_LOG,
                "        limit = self.last_stable_offset if read_committed"
                " else appender.high_watermark\n",
                "        limit = appender.high_watermark\n",
            ),
        ),
        (topics("coordinators"),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "aborted_list_left_out",
        "The list of aborted transactions is missing in answers to readers of committed records.",
        ("KIP-98",),
        (
            Edit(
                TOPIC_LOG,
                "            aborted = [(each.producer_id, each.first_offset) for each in found]\n",
                "            aborted = [(each.producer_id, each.first_offset)"
                " for each in found[:0]]\n",
            ),
        ),
        (topics("coordinators"),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "stable_before_the_marker_is_committed",
        "The records of a transaction count as decided when its marker is admitted.",
        ("KIP-98",),
        (
            Edit(
                INDEX,
                "        if self._unconfirmed:\n"
                "            stable = min(stable, self._unconfirmed[0][0])\n",
                "",
            ),
        ),
        (
            units("tests/unit/broker_layer/log/state/test_transaction_index.py"),
            topics("coordinators"),
        ),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "open_transactions_forgotten",
        "State entries leave out the open transactions, so that a new leader does not know them.",
        ("KIP-98",),
        (
            Edit(
                PARTITION,
                "            open_transactions=self._transactions.open_snapshot(),\n",
                "            open_transactions=(),\n",
            ),
        ),
        (topics("coordinators"),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "marker_of_an_old_coordinator",
        "A marker counts although a later coordinator of the transaction has already written one.",
        ("KIP-98",),
        (
            Edit(
                PRODUCERS,
                "        if coordinator_epoch < state.coordinator_epoch:\n",
                "        if coordinator_epoch < NO_COORDINATOR_EPOCH:\n",
            ),
        ),
        (units("tests/unit/broker_layer/log/state/test_partition_state.py"),),
        (
            LEDGERS_ONLY,
            hidden_from_simulation(
                "no seed has had a marker that is late by a complete transaction"
            ),
        ),
    ),
    SeededBug(
        "decision_answered_before_it_is_durable",
        "The coordinator of a transaction answers before its decision is in the log.",
        ("KIP-98",),
        (
            Edit(
                STATE,
                "            await self._store(machine, decision.transaction)\n",
                "            self._store(machine, decision.transaction)\n",
            ),
        ),
        (DECISIONS,),
        (LEDGERS_ONLY, RECOVERED_ALL_THE_SAME),
    ),
    SeededBug(
        "markers_sent_before_the_decision_is_durable",
        "The markers of a transaction are sent before its decision is in the log.",
        ("KIP-98",),
        (
            Edit(
                STATE,
                "        machine.storing(transaction)\n",
                "        machine.storing(transaction)\n"
                "        if transaction.state.is_prepared and transaction.partitions:\n"
                "            marker = transaction.marker(self._log.leader_epoch)\n"
                "            name = transaction.transactional_id\n"
                "            job = MarkerJob(name, marker, lambda _: None)\n"
                "            self._sender.send(job, transaction.partitions)\n",
            ),
        ),
        (DECISIONS,),
        (LEDGERS_ONLY, RECOVERED_ALL_THE_SAME),
    ),
    SeededBug(
        "commit_answered_before_it_is_durable",
        "A commit of offsets is acknowledged before it is in the log.",
        ("KIP-447",),
        (
            Edit(
                COMMITS,
                "            host.write(committed_records(committer.group_id, offsets))\n"
                "            await host.settled()\n",
                "            host.write(committed_records(committer.group_id, offsets))\n",
            ),
        ),
        (topics("coordinators"),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "offsets_told_while_they_load",
        "A coordinator of groups answers from incompletely loaded offsets.",
        ("KIP-447",),
        (
            Edit(
                COORDINATOR,
                '            text = f"{CONSUMER_OFFSETS}-{partition} is loading: retry"\n'
                "            raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)\n",
                "            return self._loading[partition]\n",
            ),
        ),
        (topics("coordinators"),),
        (LEDGERS_ONLY,),
    ),
    SeededBug(
        "snapshot_without_pending_offsets",
        "The snapshot at the start of a ledger leaves out the offsets that open transactions will"
        " commit.",
        ("KIP-98",),
        (
            Edit(
                SHARD,
                "            for producer_id, places in offsets.pending.items():\n",
                "            for producer_id, places in list(offsets.pending.items())[:0]:\n",
            ),
        ),
        (units("tests/unit/broker_layer/groups/test_random_groups.py"),),
        (
            LEDGERS_ONLY,
            hidden_from_simulation("a ledger of offsets seldom begins while a transaction is open"),
        ),
    ),
    SeededBug(
        "offsets_of_aborted_transactions",
        "The offsets of a transaction count whether it committed or aborted.",
        ("KIP-98",),
        (
            Edit(
                COORDINATOR,
                "        if committed:\n            for group_id, placed in",
                "        if producer_id >= 0:\n            for group_id, placed in",
            ),
        ),
        (topics("coordinators"),),
        (LEDGERS_ONLY,),
    ),
)

"""Seeded bugs of transactions, and of the state of coordinators.

Leaves what is committed in a partition's log to `topics_logs`.

Source: topics design; KIP-98, KIP-447.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, topics

TOPIC_LOG = "broker_layer/log/topic_log.py"
INDEX = "broker_layer/log/state/transaction_index.py"
PARTITION = "broker_layer/log/state/partition_state.py"
COMMITS = "broker_layer/groups/offset_handlers.py"
COORDINATOR = "broker_layer/groups/coordinator.py"
ASSIGNED = "broker_layer/control/assigned_partition.py"
LED = "broker_layer/coordinator_partitions.py"
STATE_LOG = "broker_layer/log/state_log.py"

BUGS = (
    SeededBug(
        "late-batch-opens-a-transaction",
        "A batch that waited in the log behind the marker of its transaction opens another one.",
        ("KIP-890",),
        (
            Edit(
                PARTITION,
                "        is_confirmed = may_open or self.is_open",
                "        is_confirmed = header.producer_id >= 0 or self.is_open",
            ),
        ),
        (topics("coordinators"),),
    ),
    SeededBug(
        "open-transaction-shown-to-committed-readers",
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
    ),
    SeededBug(
        "aborted-transactions-not-listed",
        "The list of aborted transactions is missing in answers to readers of committed records.",
        ("KIP-98",),
        (
            Edit(
                TOPIC_LOG,
                "            aborted = [(abort.producer_id, abort.first_offset)"
                " for abort in aborts]\n",
                "            aborted = [(abort.producer_id, abort.first_offset)"
                " for abort in aborts[:0]]\n",
            ),
        ),
        (topics("coordinators"),),
    ),
    SeededBug(
        "transaction-decided-before-its-marker-is-committed",
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
        (topics("coordinators"),),
    ),
    SeededBug(
        "open-transactions-forgotten-by-a-state-entry",
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
    ),
    SeededBug(
        "offset-commit-answered-before-it-is-durable",
        "A commit of offsets is acknowledged before it is in the log.",
        ("KIP-447",),
        (
            Edit(
                COMMITS,
                "            host.write(committed_records(request.group_id, offsets))\n"
                "            await host.settled()\n",
                "            host.write(committed_records(request.group_id, offsets))\n",
            ),
        ),
        (topics("coordinators"),),
    ),
    SeededBug(
        "offsets-answered-while-they-load",
        "A coordinator of groups answers from incompletely loaded offsets.",
        ("KIP-447",),
        (
            Edit(
                LED,
                "        if led.refusal is not None:\n            raise led.refusal\n",
                "        if led.refusal is not None and not led.is_loading:\n"
                "            raise led.refusal\n",
            ),
        ),
        (topics("coordinators"),),
    ),
    SeededBug(
        "offsets-of-an-aborted-transaction-kept",
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
    ),
    SeededBug(
        "state-ledger-counts-before-its-snapshot-is-whole",
        "The mark that makes a coordinator's ledger count is written in the middle of its"
        " snapshot.",
        ("KIP-447",),
        (
            Edit(
                STATE_LOG,
                "        await writer.append_many([*entries, SNAPSHOT_END])\n",
                "        rest = [CHANGE + each[1:] for each in entries[1:]]\n"
                "        await writer.append_many([*entries[:1], SNAPSHOT_END, *rest])\n",
            ),
        ),
        (topics("coordinators"),),
    ),
    SeededBug(
        "coordinator-serves-although-its-session-lapsed-while-it-loaded",
        "A lapse of the session during the load of a coordinator's partition is not remembered, and"
        " the coordinator answers from what it loaded.",
        ("1.3",),
        (
            Edit(
                ASSIGNED,
                "        elif self._attempt is not None:\n"
                "            self.spent = max(self.spent, self.status.epoch)\n"
                "            self._note(Stage.WAITS, self.status.epoch, reason)\n"
                "            self._attempt.cancel()\n",
                "",
            ),
            Edit(LED, "        return self._log.lead_refusal\n", "        return None\n"),
        ),
        (topics("members"),),
    ),
)

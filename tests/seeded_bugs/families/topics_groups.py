"""Seeded bugs of groups with members, of deletion, and of a leader that continues.

Leaves what is committed in a partition's log to `topics_logs`, and offsets of transactions to
`topics_state`.

Source: topics design; protocol rule 10.1; KIP-101, KIP-107, KIP-447, KIP-848.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, topics

RECONCILIATION = "broker_layer/groups/consumer_group.py"
CLASSIC = "broker_layer/groups/classic_group.py"
CONSUMERS = "broker_layer/groups/consumer_group.py"
RECORD = "metadata/topics/partition.py"
TOPIC_LOG = "broker_layer/log/topic_log.py"
ERASING = "broker_layer/control/ledger_erasing.py"
SWEEPING = "broker_layer/control/ledger_erasing.py"
CHAIN = "broker_layer/log/ledger_list.py"
ASSIGNED = "broker_layer/control/assigned_partition.py"

BUGS = (
    SeededBug(
        "partition-given-before-it-is-released",
        "A partition is free for its next owner when the previous one is requested to release it,"
        " not when it has done so.",
        ("KIP-848",),
        (
            Edit(
                RECONCILIATION,
                "    return owned is None or any(partition in sought for partition in owned)\n",
                "    return False\n",
            ),
        ),
        (topics("members"),),
    ),
    SeededBug(
        "commit-of-an-old-generation-accepted",
        "A commit under an old generation of a classic group is accepted.",
        ("KIP-447",),
        (
            Edit(
                CLASSIC,
                "            if generation != self.generation:\n"
                "                return ErrorCode.ILLEGAL_GENERATION\n"
                "        elif not is_transactional:\n",
                "        elif not is_transactional:\n",
            ),
        ),
        (topics("members"),),
    ),
    SeededBug(
        "commit-of-an-old-member-epoch-accepted",
        "A commit under an old epoch of a member is accepted.",
        ("KIP-848",),
        (
            Edit(
                CONSUMERS,
                "        return ErrorCode.NONE if epoch == member.epoch"
                " else ErrorCode.STALE_MEMBER_EPOCH\n",
                "        return ErrorCode.NONE\n",
            ),
        ),
        (topics("members"),),
    ),
    SeededBug(
        "members-expired-after-a-load",
        "A new coordinator gives the members that it loads no time to find it.",
        ("KIP-848",),
        (
            Edit(
                CONSUMERS,
                "            session_ends_ms = now_ms + self._config.consumer_session_timeout_ms\n",
                "            session_ends_ms = now_ms\n",
            ),
        ),
        (topics("members"),),
    ),
    SeededBug(
        "log-start-goes-back-at-a-takeover",
        "A new leader begins the log at the start of its oldest ledger, even if records of it were"
        " deleted.",
        ("KIP-107",),
        (
            Edit(
                RECORD,
                "        return replace(self, leader_epoch=epoch)\n",
                "        start = self.segments[0].base_offset if self.segments"
                " else self.log_start_offset\n"
                "        return replace(self, leader_epoch=epoch, log_start_offset=start)\n",
            ),
        ),
        (topics("deletions"),),
    ),
    SeededBug(
        "log-start-answered-before-it-is-stored",
        "DeleteRecords is answered when this leader has the new start, before it is in the list of"
        " ledgers.",
        ("KIP-107",),
        (
            Edit(
                TOPIC_LOG,
                "            await self._ledger_list.change("
                "lambda record: record.with_log_start(offset))\n",
                "            self._ledger_list.record = self._ledger_list.record"
                ".with_log_start(offset)\n",
            ),
        ),
        (topics("deletions"),),
    ),
    SeededBug(
        "ledgers-left-when-a-topic-is-erased",
        "A deleted topic's lists are removed before its newest ledgers, which are then never"
        " found.",
        ("10.1",),
        (
            Edit(
                ERASING,
                "        for segment in segments:\n",
                "        for segment in segments[:-1]:\n",
            ),
            Edit(
                SWEEPING,
                "        return listed is None or (",
                "        return listed is not None and (",
            ),
        ),
        (topics("deletions"),),
        masked_by="ledgers whose partition is gone are found and deleted later",
    ),
    SeededBug(
        "epoch-reused-after-the-writer-failed",
        "A leader whose writer failed opens its log again under its previous epoch.",
        ("KIP-101",),
        (
            Edit(
                ASSIGNED,
                "        self.spent = max(self.spent, epoch)\n"
                "        if self._opened_epoch == epoch and self._opened is not None:\n",
                "        if self._opened_epoch == epoch and self._opened is not None:\n",
            ),
            Edit(
                ASSIGNED,
                "                self._opened_epoch != wanted"
                " or self._opened_epoch <= self.spent\n",
                "                self._opened_epoch != wanted or self.serving is None\n",
            ),
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
            Edit(
                RECORD,
                '            assert epoch > self.epochs[-1].epoch, "epochs grow along the list"\n',
                "            if epoch == self.epochs[-1].epoch:\n                return self\n",
            ),
        ),
        (topics("ledgers"),),
    ),
)

"""Consumer groups: members, assignments of partitions, and committed offsets.

Leaves the topics themselves to the logs, and the durability of group state to `state_log`.

- `coordinator`: groups whose partitions of `__consumer_offsets` this broker leads.
- `group_host`: one loaded partition: its log, its waiting requests, and the timer of its groups.
- `shard`: groups and offsets of one partition: replay, snapshot, look-up.
- `classic_group`: life of one group of the classic protocol: members, rebalances, time-outs.
- `consumer_group`: life of one group of KIP-848: heartbeats, epochs, reconciliation.
- `consumer_targets`: subscriptions, and the partitions that each member should own.
- `offset_table`: committed offsets, and those that wait for their transaction.
- `records`: records of a coordinator's log, as bytes.
- `handlers`: handlers of the group APIs, by API key.
- `offset_handlers`: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.
- `values`: settings, and the values that the group state machines take and give.
"""

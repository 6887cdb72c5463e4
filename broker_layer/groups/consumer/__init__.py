"""Groups of the KIP-848 protocol: targets, reconciliation, assignors and their records.

- `consumer_group`: life of one group: heartbeats, epochs, targets, time-outs.
- `consumer_targets`: the partitions that each member should own.
- `assignors`: assignors of the server.
- `reconciliation`: one step of a member towards its target.
- `topic_patterns`: topic names that match a subscription's pattern.
- `consumer_handlers`: ConsumerGroupHeartbeat and ConsumerGroupDescribe.
- `consumer_records`: records of these groups.
- `consumer_values`: members, assignments, heartbeats and outcomes as values.
"""

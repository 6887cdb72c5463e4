"""Consumer groups: members, assignments of partitions, and committed offsets.

Leaves the topics themselves to the logs, and the durability of group state to `state_log`.

- `coordinator`: groups whose partitions of `__consumer_offsets` this broker leads.
- `group_host`: one loaded partition: its shard, its log, and waiting requests.
- `shard`: groups and offsets of one partition: replay, snapshot, look-up.
- `handlers`: handlers for each API key.
- `group_admin`: DescribeGroups, ListGroups and DeleteGroups.
- `roster`: members of one classic group.
- `records`: records of a coordinator's log, as bytes.
- `retention`: removal of what outlived its retention.
- `timers`: one timer of the loop for all groups.
- `topics`: what groups need to know of topics.
- `values`: values that the group state machines take and give.
- `config`: limits and delays, by Kafka's names.
- `classic/`: groups of the classic protocol.
- `consumer/`: groups of KIP-848.
- `offsets/`: committed offsets.
"""

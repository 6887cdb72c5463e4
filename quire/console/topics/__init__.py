"""Topics, groups and transactions, as the console reads and changes them.

- `access`: brokers for one page, and coordinators.
- `topic_reading`: topics, their partitions, settings and ledgers.
- `record_rows`: records of a page, decoded and cut. Pure.
- `record_reading`: records from a partition's leader.
- `group_lag`: lag of a group, in records and in seconds.
- `group_reading`: groups, their members, and what they have committed.
- `offset_reset`: new offsets of a group without members.
- `transaction_reading`: transactions that are open, and their end by an operator.
"""

"""Topics, groups and transactions, as the console reads and changes them.

- `access`: brokers for one page, and coordinators.
- `records`: records from a partition's leader, decoded and cut.
- `group_reading`: groups, their members, and what they have committed.
- `offset_reset`: new offsets of a group without members.
"""

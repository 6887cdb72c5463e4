"""Topics, groups and transactions, as the console reads and changes them.

- `access`: brokers for one page, and coordinators.
- `groups`: groups, their members, lag and new offsets.
- `records`: records from a partition's leader, decoded and cut.
"""

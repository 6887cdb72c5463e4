"""Committed offsets of groups: the table, commits, reads and expiry.

- `offset_table`: committed offsets, and those that wait for their transaction.
- `offset_commits`: OffsetCommit and TxnOffsetCommit.
- `offset_reads`: OffsetFetch and OffsetDelete.
- `offset_expiry`: offsets that outlived their retention.
"""

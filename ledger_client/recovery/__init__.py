"""Shells of recovery: fence, read the end, write back, close.

- `recoverer`: performs the recovery of one ledger.
- `unclean_recovery`: closes an in-sync ledger whose last members are all lost, and fences them
  later (rule 11.6).
- `missing_writers`: when the writer of an open ledger counts as gone. Pure.
- `abandoned_recovery`: recovers such ledgers, never one of a live writer.
"""

"""Shells of recovery: fence, read the end, write back, close.

- `recoverer`: performs the recovery of one ledger.
- `recovery_bookies`: its requests to bookies, with the ledger's key or without one.
- `recovered_entries`: entries until they are written back, and their batches.
- `recovery_errors`: reasons of a failed recovery, as errors.
- `unclean_recovery`: closes an in-sync ledger whose last members are all lost (rule 11.6).
- `missing_writers`: when the writer of an open ledger counts as gone. Pure.
- `abandoned_ledgers`: open ledgers whose writers are gone, with entries that no reader sees.
- `abandoned_recovery`: recovers such ledgers, never one of a live writer.
- `late_fences`: fences of the members that it did not reach.
"""

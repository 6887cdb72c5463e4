"""Members of an in-sync ledger that leave, return, or get copies.

- `away_members`: members that are away, and when to probe them.
- `copying`: copies closed fragments to one more bookie (rule 9.1).
- `copy_limits`: rate and memory of copying, and its progress.
"""

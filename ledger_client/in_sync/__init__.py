"""Members of a ledger that leave, return, or get copies.

- `away_members`: members that are away, and when to probe them.
- `copy_ends`: the source and the target of a copy.
- `copying`: copies closed fragments to one more bookie (rule 9.1).
- `range_copy`: stores damaged entries again on a member (rule 9.12).
- `copy_limits`: rate and memory of copying, and its progress.
"""

"""Missing copies: which members of closed ledgers lack entries that they must hold.

A close and a recovery need an ack quorum only, so a member may lack entries for ever.

- `comparison`: asks the members of one ledger what they hold.
- `check_order`: which ledger is compared next. Pure.
- `missing_copies`: compares the ledgers of a cluster, one at a time, for the auditor.

Source: protocol rule 9.16; docs/repair.md, "Missing copies".
"""

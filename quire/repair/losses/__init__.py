"""Losses: entries without any copy, accepted by an operator, and recoveries that cannot be decided.

- `lost_ranges`: which entries are lost, from the answers of the bookies. Pure.
- `survey`: questions to the bookies.
- `acceptance`: accepts the loss of entries of a closed ledger.
- `undecided_end`: closes a ledger whose recovery cannot be decided.

Source: protocol rules 9.9-9.11.
"""

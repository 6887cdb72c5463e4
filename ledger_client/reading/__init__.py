"""Readers of ledgers and of single replicas.

- `reader`: reads one ledger, open or closed.
- `followed_ledger`: current metadata and LAC of a ledger.
- `tailing`: LAC from bookies: requests, and long polls until it moves.
- `many_ledgers`: ranges of many ledgers, with the next ones under way.
- `range_reader`: one range from any replica that can return it.
- `verified_entries`: what of an answer can be trusted.
- `replica_reading`: one bookie's copies, read from it directly, or compared with another's.
- `verification`: every entry of every replica.
"""

"""Readers of ledgers and of single replicas.

- `reader`: reads one ledger, open or closed.
- `followed_ledger`: current metadata and LAC of a ledger.
- `lac_reading`: LAC from the bookies of the last fragment.
- `tailing`: long polls for a LAC that moved.
- `many_ledgers`: ranges of many ledgers, with the next ones under way.
- `range_reader`: one range from any replica that can return it.
- `verified_entries`: what of an answer can be trusted.
- `replica_reading`: one bookie's copies, read from it directly.
- `replica_entry`: one entry as one bookie stores it.
- `replica_comparison`: two bookies' copies, compared.
- `verification`: every entry of every replica.
"""

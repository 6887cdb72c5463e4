"""Readers of ledgers and of single replicas.

- `reader`: reads one ledger, open or closed.
- `reader_hold`: what an open reader holds in its client.
- `followed_ledger`: current metadata and LAC of a ledger.
- `lac_reading`: LAC from the bookies of the last fragment.
- `tailing`: long polls for a LAC that moved.
- `many_ledgers`: ranges of many ledgers, with the next ones under way.
- `read_ahead`: a long range in order, with several requests under way.
- `range_reader`: one range from any replica that can return it.
- `verified_entries`: what of an answer can be trusted.
- `length_search`: bytes of a ledger before an entry.
- `entry_ranges`: arithmetic of ranges.
- `replica_reading`: one bookie's copies, read from it directly.
- `replica_entry`: one entry as one bookie stores it.
- `replica_comparison`: two bookies' copies, compared.
- `verification`: every entry of every replica.
"""

"""Places of runs of entries, and what is known of each ledger: in memory, over a key-value store.

- `index`: runs of every ledger, in memory since the last checkpoint and in the store before.
- `index_runs`: runs of one ledger, sorted and without overlap; pure.
- `index_pages`: keys and values of the store, and the work of its transactions.
- `index_scan`: scans of stored runs over all ledgers.
- `stored_states`: ledger states in the store, many in one transaction.
- `stored_segments`: what the store keeps of segments.
- `horizon_pages`: horizon of ledger ids, and the trimming of tombstones below it.
- `replica_state`: decision on an add, a fence or a read of one ledger; pure.
"""

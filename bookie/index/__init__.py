"""Places of runs of entries, and what is known of each ledger: in memory, over a key-value store.

- `index`: runs of every ledger, in memory since the last checkpoint and in the store before.
- `index_runs`: runs of one ledger, sorted and without overlap; pure.
- `index_pages`: sealed values of the store, the checkpoint's mark, and stored states.
- `stored_runs`: runs in the store, with live bytes and damage of segments.
- `stored_states`: ledger states in the store, many in one transaction, and the horizon.
- `replica_state`: decision on an add, a fence or a read of one ledger; pure.
"""

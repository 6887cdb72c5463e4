"""State of a log at its leader, and the state entries that store it.

- `partition_state`: producers, transactions, epochs and index of a log.
- `producer_state`: sequences of idempotent producers.
- `transaction_index`: open and aborted transactions.
- `epoch_table`: end offset of each leader epoch.
- `offset_index`: entry of a ledger from which to look for an offset or a time.
- `state_entry`: that state as a ledger entry.
"""

"""What a bookie does with ledgers and entries, in terms of the log and the index."""

"""A bookie's operations on ledgers and entries, on top of the log and the index."""

"""Writer of an open ledger: batches, acknowledgements and ensemble changes."""

"""Ledger metadata, ledger ids, chains of ledgers and the deletion feed."""

"""Ledger metadata, ids, chains of ledgers and the feed of deletions."""

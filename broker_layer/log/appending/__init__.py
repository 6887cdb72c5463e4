"""Appends to a log: admission, commit, rolling to the next ledger, and retention."""

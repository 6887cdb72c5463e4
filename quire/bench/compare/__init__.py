"""Measures ways to replicate a ledger side by side, while things go wrong."""

"""Readers of ledgers and of single replicas."""

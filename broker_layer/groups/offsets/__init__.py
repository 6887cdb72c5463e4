"""Committed offsets of groups: the table, commits, reads and expiry."""

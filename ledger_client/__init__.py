"""The replication protocol: ledgers appended to, read, fenced and recovered over bookies.

It leaves storing bytes to `bookie` and agreeing on metadata to `metadata`.
"""

"""Simulates months of failures of fleets that no test machine has, per replication configuration.

Leaves messages to `tests/simulation`: here the steps are failures, changes, copies and takeovers.
"""

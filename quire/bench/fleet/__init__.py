"""Simulation of months of failures of large fleets, per replication configuration.

Leaves single messages to `tests/simulation`: the steps here are failures, changes, copies and
takeovers.
"""

"""Transactions: their coordinators, the markers that end them, and verification by leaders.

Leaves the durability of a coordinator's state to `broker_layer.log.state_log`, and batches of
transactions to the logs of their partitions.
"""

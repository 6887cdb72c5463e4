"""Transactions: their coordinators, the markers that end them, and what leaders ask before one.

It leaves the durability of a coordinator's state to `broker_layer.state_log`, and the batches of a
transaction to the partitions' logs.
"""

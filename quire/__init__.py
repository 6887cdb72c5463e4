"""The `quire` command and the local cluster.

Leaves the replication protocol to `ledger_client`, the storage node to `bookie` and coordination
to `metadata`.
"""

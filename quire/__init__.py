"""The `quire` command, the local cluster and the console: what a person starts.

It leaves the replication protocol to `ledger_client`, the storage node to `bookie` and coordination
to `metadata`.
"""

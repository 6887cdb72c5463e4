"""Cluster metadata: ledgers, topics, registrations, and the store that keeps them.

Imports nothing else of Quire but `quire.copyable`, `quire.identity` and `quire.tracing`; every
other package builds on it.

- `ids`: identifiers that every package shares.
- `paths`: register of every kind of node in the store.
- `records`: records that say how they are stored by the types of their fields.
- `msgpack_fields`: versioned msgpack arrays, with checks of types and ranges.
- `callbacks`: registry of change callbacks.
- `server_options`: options of servers with access to a cluster.
- `backoff`: pauses between repeated calls.
- `cancelling`: cancellation of tasks whose object ends.
- `errors`: what can go wrong with coordination.
- `store/`: the metadata store.
- `gateway/`: client of a gateway to it.
- `ledgers/`: ledgers, ids, chains and the deletion feed.
- `registry/`: bookies.
- `brokers/`: brokers and the controller's election.
- `topics/`: topics and partitions.
- `security/`: users and lists of rights of brokers, and rights on the stored nodes.
- `restore/`: dump of the metadata, and its restore.
- `repair/`: states of bookies, and what repair is to do and does.
"""

"""Metadata gateway: does the metadata work of clients that ZooKeeper need not trust.

- `options`: options of one gateway.
- `limits`: limits of its connections and sessions.
- `rights/`: decisions about clients' requests. Pure.
- `sessions`: sessions of clients, their ephemeral nodes and their ids of ledgers.
- `requests`: reads and writes of clients, with their decisions.
- `connection`: server's end of one connection.
- `gateway_context`: what all connections share.
- `metrics`: metrics of one gateway.
- `gateway_process`: one gateway, built from its store and options, and its port.
- `main`: process of one gateway.

Leaves the client, and the bytes of the protocol, to `metadata.gateway`. A gateway keeps nothing but
the sessions of its clients; any number of them serve one cluster.

Source: docs/security.md, "A gateway for clients".
"""

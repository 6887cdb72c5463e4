"""Metadata gateway: does the metadata work of clients that ZooKeeper need not trust.

- `options`: options of one gateway.
- `limits`: limits of its connections and sessions.
- `rights/`: decisions about clients' requests. Pure.
- `id_blocks`: ids that a session allocated. Pure.
- `own_nodes`: ephemeral nodes of a session, and what is certain of each. Pure.
- `sessions`: sessions of clients, and the end of their ephemeral nodes.
- `contact`: whether the metadata service answers, shared by all clients.
- `requests`: reads and writes of clients, with their decisions.
- `connection`: server's end of one connection.
- `gateway_context`: what all connections share.
- `server`: port of one gateway.
- `metrics`: metrics of one gateway.
- `gateway_process`: one gateway, built from its store and options.
- `main`: process of one gateway.

Leaves the client, and the bytes of the protocol, to `metadata.gateway`. A gateway keeps nothing but
the sessions of its clients; any number of them serve one cluster.

Source: docs/security.md, "A gateway for clients".
"""

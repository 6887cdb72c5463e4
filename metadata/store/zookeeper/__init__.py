"""Metadata store over ZooKeeper, with kazoo.

- `store`: the store, and the session's state.
- `session`: calls to one kazoo client, and its events.
- `grouped_reads`: reads of nodes that are asked for together, sent together.
- `multi_read`: request that reads several nodes.
- `connections`: TCP and TLS connections to the servers.
- `heartbeat`: contact with the server, and leaving a silent one.
- `calls`: operations and errors, translated to kazoo and back.
- `watches`: watches, armed again after each event.
- `watch_turns`: the order in which watches are armed. Pure.
"""

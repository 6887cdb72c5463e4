"""`quire zookeeper`.

- `verbs`: its verbs and their arguments.
- `zookeeper_server`: runs a server.
- `zookeeper_status`: shows what servers do.
"""

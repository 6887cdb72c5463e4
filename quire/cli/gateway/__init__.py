"""`quire gateway`: the command and its handler.

- `verbs`: its verbs and their arguments.
- `gateway_server`: runs a gateway.
"""

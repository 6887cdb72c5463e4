"""Rights of processes on the nodes of the metadata, and their migration.

- `node_rights`: what servers and clients may do to each node.
- `rights_record`: who the servers and clients are, as stored.
- `securing`: rights of existing nodes, set one by one.
- `access_errors`: errors of rights.
"""

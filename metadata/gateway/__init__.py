"""Client of a metadata gateway, a server that does the metadata work of clients it does not trust.

- `frames`: frames of the connection. Pure.
- `messages`: requests and replies. Pure.
- `codec`: their bytes. Pure.
- `failures`: errors of the metadata, as bytes and back. Pure.
- `errors`: refusals of a gateway.
- `connection`: client's end of one connection.
- `session`: a session, kept from connection to connection.
- `store`: metadata store over a gateway.
- `opening`: opens the store that a metadata URI names.

Leaves the server to `quire.gateway`.
"""

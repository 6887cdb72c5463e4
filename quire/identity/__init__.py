"""Identities, and how they are proved.

- `principal`: who a client is, by its name or its certificate. Pure.
- `tls`: contexts of clients and servers, new ones when files change, refused certificates.
- `client_file`: the file with a client's identity, also for Kafka's Python client.
- `sasl_access`: login of a client at brokers and bookies.
- `zookeeper_access`: TLS and login of connections to ZooKeeper.
- `sasl/`: authentication of clients by a password or a token.
- `shares`: places that clients share, and wait for in turns.
- `secret_files`: secrets in files of their owner, and reads with a limit.
- `errors`: errors of certificates and secrets.

Leaves what each principal may do to the servers, and storing users and rights to
`metadata.security`. Imports nothing of Quire.
"""

"""Identities, and how they are proved.

- `principal`: who a client is.
- `tls`: contexts of clients.
- `renewed_tls`: new contexts of clients when their files change.
- `server_tls`: contexts of servers, and new ones when their files change.
- `refused_certificates`: certificates that servers refuse though an authority signed them.
- `client_file`: the file with a client's identity.
- `kafka_settings`: the same for Kafka's Python client.
- `sasl_access`: login of a client at brokers and bookies.
- `zookeeper_access`: TLS and login of connections to ZooKeeper.
- `certificate_names`: principal of a certificate.
- `sasl/`: authentication of clients by a password or a token.
- `shares`: places that clients share, of which each has a part at most. Pure.
- `fair_queue`: places that clients wait for, in turns.
- `secret_files`: secrets in files of their owner, and reads with a limit.
- `errors`: errors of certificates and secrets.

Leaves what each principal may do to the servers, and storing users and rights to
`metadata.security`. Imports nothing of Quire.
"""

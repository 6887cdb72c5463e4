"""Authentication of clients of brokers and bookies by SASL.

- `mechanism`: names of mechanisms and users, and the interface of one exchange.
- `sessions`: mechanisms that a server offers, who logs in, and whose session ends.
- `credentials`: what is stored of a password, and decoys for unknown users.
- `scram`: SCRAM-SHA-256 and SCRAM-SHA-512.
- `plain`: PLAIN.
- `oauthbearer`: OAUTHBEARER.
- `tokens`: verification of tokens.
- `jwks`: public keys for tokens, read again from their document.

Leaves frames and connections to the servers, and storing credentials to `metadata.security`. All
but `sessions`, `tokens` and `jwks` is pure.
"""

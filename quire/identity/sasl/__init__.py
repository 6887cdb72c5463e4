"""Authentication of clients of brokers and bookies by SASL.

- `authenticator`: mechanisms that a server offers.
- `mechanism`: names of mechanisms, and the interface of one exchange.
- `sessions`: who is logging in, who has logged in, and whose session ends.
- `user_names`: names of users in messages.
- `credentials`: what is stored of a password.
- `credential_forms`: what a client sees of the credentials of users.
- `decoys`: what stands for the credentials of unknown users.
- `scram`: server's side of SCRAM-SHA-256 and SCRAM-SHA-512.
- `scram_client`: client's side of them.
- `scram_messages`: messages of them.
- `nonces`: nonces of SCRAM.
- `plain`: PLAIN.
- `oauthbearer`: OAUTHBEARER.
- `tokens`: verification of tokens.
- `jwks`: public keys for tokens.
- `jwks_cache`: when the keys are read again.
- `jwks_documents`: reads of keys, from a file or a server.

Leaves frames and connections to the servers, and storing credentials to `metadata.security`. All
but `authenticator`, `sessions`, `nonces`, `tokens` and the three of keys is pure.
"""

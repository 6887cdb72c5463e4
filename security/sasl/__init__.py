"""Authentication of Kafka's clients by SASL.

- `authenticator`: mechanisms that a server offers.
- `mechanism`: names of mechanisms, and the interface of one exchange.
- `user_names`: names of users in messages.
- `credentials`: what is stored of a password.
- `decoys`: what stands for the credentials of unknown users.
- `scram`, `scram_client`, `scram_messages`: SCRAM-SHA-256 and SCRAM-SHA-512.
- `nonces`: nonces of SCRAM.
- `plain`: PLAIN.
- `oauthbearer`: OAUTHBEARER.
- `tokens`: verification of tokens.
- `jwks`, `jwks_cache`, `jwks_documents`: public keys for tokens.

Leaves frames and connections to the broker, and storing credentials to `metadata.security`. All but
`authenticator`, `nonces`, `tokens` and the three of keys is pure.
"""

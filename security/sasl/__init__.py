"""Authentication of Kafka's clients by SASL. Pure.

- `mechanism`: names of mechanisms, and the interface of one exchange.
- `user_names`: names of users in messages.
- `credentials`: what is stored of a password.
- `decoys`: what stands for the credentials of unknown users.
- `scram`, `scram_client`, `scram_messages`: SCRAM-SHA-256 and SCRAM-SHA-512.
"""

"""Authentication of Kafka's clients by SASL. Pure.

- `credentials`: what is stored of a password.
"""

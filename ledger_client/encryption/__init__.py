"""Encryption of payloads in the client, one key for each ledger. Bookies see ciphertext.

- `keys`: the application's keys, in memory or in a file, and which of them a ledger gets.
- `ledger_cipher`: key of one ledger, and the bytes of an encrypted payload.
"""

"""Encryption of payloads in the client, one key for each ledger. Bookies see ciphertext.

- `keys`: the application's keys, and which of them a ledger gets.
- `key_file`: keys in a file.
- `ledger_cipher`: key of one ledger, and the bytes of an encrypted payload.
"""

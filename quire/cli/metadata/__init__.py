"""The noun `metadata` of the command line.

- `verbs`: verbs and their arguments.
- `metadata_check`: `check` and `compare`.
- `metadata_restore`: `dump`, `restore` and `accept-restore`.
- `metadata_secure`: `secure` and `identity`.
"""

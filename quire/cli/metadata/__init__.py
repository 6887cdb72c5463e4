"""The noun `metadata` of the command line.

- `verbs`: verbs and their arguments.
- `metadata_check`: `check`.
- `metadata_dump`: `dump`.
- `metadata_restore`: `restore` and `accept-restore`.
- `metadata_compare`: `compare`.
- `metadata_secure`: `secure` and `identity`.
"""

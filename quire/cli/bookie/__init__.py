"""The noun `bookie` of the command line.

- `verbs`: verbs and their arguments.
- `bookie_server`: `format`, `run` and `check`.
- `bookie_manage`: `list`, `info`, `readonly`, `accept-metadata`, `drain`, `undrain` and `remove`.
- `bookie_replica`: `entry` and `compare`.
- `bookie_offline`: `segments`, `dump` and `rebuild-index`.
"""

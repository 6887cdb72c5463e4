"""The noun `bookie` of the command line.

- `verbs`: verbs and their arguments.
- `bookie_server`: `format`, `run` and `check`.
- `bookie_registry`: `list`, `info`, `readonly` and `accept-metadata`.
- `bookie_lifecycle`: `drain`, `undrain` and `remove`.
- `bookie_replica`: `entry` and `compare`.
- `bookie_offline`: `segments`, `dump` and `rebuild-index`.
"""

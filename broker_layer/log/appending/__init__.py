"""Appends to a log: admission, commit, and retention.

- `log_appender`: appends batches to the open ledger, and reports when they are committed.
- `batch_limits`: checks of a batch against its topic's settings: size, keys, times.
- `pending_batches`: batches that are not committed, and recent ones.
- `log_retention`: where a log begins after retention.
"""

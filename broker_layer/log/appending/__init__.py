"""Appends to a log: admission, commit, rolling to the next ledger, and retention.

- `log_appender`: appends batches to the open ledger, and reports when they are committed.
- `batch_stamping`: a batch with its offset and epoch.
- `pending_batches`: batches that are not committed, and recent ones.
- `ledger_roller`: the next ledger before the old one is full, and retention.
- `log_retention`: where a log begins after retention.
"""

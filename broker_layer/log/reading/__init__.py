"""Reads of a log: by offset and by time, with read-ahead for sequential readers.

- `segment_reading`: entries of a partition's ledgers, in limited pieces.
- `read_ahead`: pieces read early for consumers that catch up.
- `kept_batches`: batches that were read and not returned yet.
- `log_reader`: reads by offset and by time.
"""

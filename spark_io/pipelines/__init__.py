"""Jobs over ledgers, each a function and a command.

Leaves reading and writing to `spark_io`, and the commands to `quire.cli.spark`.

- `scrub`: every replica of every entry of closed ledgers, checked.
- `archive`: closed ledgers into Parquet files.
- `restore`: archived ledgers into new ones.
- `ingest`: lines of files, or any DataFrame, into a chain.
- `tail_to_table`: a table kept up to date with a chain.
"""

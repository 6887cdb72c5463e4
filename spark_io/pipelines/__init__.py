"""Jobs over ledgers, each a function and a command: scrub, archive, restore, ingest, tail-to-table.

Leaves reading and writing to `spark_io`, and the commands to `quire.cli.spark`.
"""

"""Spark's data source of ledgers.

- `source`: the `ledger` data source.
- `options`: its options, checked.
- `selecting`: ledgers of a query, and how far each may be read.
- `splits`: parts that tasks read.
- `batch`: batch DataFrame.
- `stream`: stream of micro-batches.
- `stream_ledgers`: how far a stream reaches now, from memory.
- `positions`: positions in ledgers and chains.
- `reading`: ranges of entries in a task, as Arrow batches.
- `rows`: entries into Arrow batches, without touching each.
- `write`: rows into ledgers, published in a chain exactly once.
"""

"""Spark's data source of ledgers.

- `source`: the `ledger` data source.
- `options`: its options, checked.
- `readers`: batch DataFrame, and stream of micro-batches.
- `selecting`: ledgers of a query, and how far each may be read.
- `following`: how far a stream reaches now, from memory, and ends that were recorded.
- `positions`: positions in ledgers and chains.
- `reading`: ranges of entries in a task, as Arrow batches.
- `rows`: entries into Arrow batches, without touching each.
- `write`: rows into ledgers, published in a chain exactly once.
"""

"""Spark's data source of ledgers.

- `source`: the `ledger` data source.
- `options`: its options, checked.
- `selecting`: ledgers of a query, and how far each may be read.
- `known_ledgers`: ledgers with their readable ends.
- `abandoned`: open ledgers whose writers are gone.
- `chain_links`: links of a chain, and those that the process remembers.
- `packed_ranges`: ranges in columns, for plans.
- `splits`: parts that tasks read.
- `batch`: batch DataFrame.
- `stream`: stream of micro-batches.
- `stream_ledgers`: how far a stream reaches now, from memory.
- `open_ledgers`: open ledgers with their LAC, and ends that were recorded in them.
- `positions`: positions in ledgers and chains.
- `reading`: ranges of entries in a task, as Arrow batches.
- `unreadable`: failures of reads: an error, or entries left out.
- `ids_only`: entries without their payloads, from metadata.
- `bounds`: what a batch query leaves out before it reads.
- `rows`: entries into Arrow batches, without touching each.
- `write`: rows into ledgers, published in a chain exactly once.
"""

"""Spark's data source of topics.

- `source`: the `topic` data source.
- `options`: its options, checked.
- `readers`: batch DataFrame, and stream of micro-batches.
- `access`: the driver's access to topics, partitions and ledgers.
- `partitions`: how far partitions may be read.
- `ranges`: entries that hold the offsets of a query.
- `offsets`: arithmetic of offsets.
- `reading`: ranges of records in a task, as Arrow batches.
- `rows`: records out of batches, and into Arrow batches.
- `producer`: the stock producer, for each record that Kafka stores.
- `write`: rows into topics, through brokers, at least once or exactly once.
"""

"""Spark's data source of topics.

- `topic_source`: the `topic` data source.
- `topic_options`: its options, checked.
- `kafka_names`: names of options of Spark's Kafka source.
- `topic_access`: the driver's access to topics, partitions and ledgers.
- `topic_view`: how far partitions may be read.
- `topic_partition`: the same of one partition.
- `topic_tail`: that end, and what was aborted, from the newest entries.
- `topic_ranges`: entries that hold the offsets of a query.
- `topic_splits`: parts that tasks read.
- `topic_batch`: batch DataFrame.
- `topic_stream`: stream of micro-batches.
- `topic_offsets`: arithmetic of offsets.
- `topic_reading`: ranges of records in a task, as Arrow batches.
- `topic_rows`: records into Arrow batches.
- `record_columns`: records out of batches, column by column.
- `topic_write`: rows into topics, through brokers, at least once.
- `topic_once`: the same exactly once, in one transaction of the driver.
"""

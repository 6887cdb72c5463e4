"""Topics, partitions and what brokers report of them.

- `topic`: a topic as a value, with the allowed changes, and its bytes.
- `topic_store`: stores topics by compare-and-set.
- `topic_names`: names that differ in `.` and `_` only.
- `partition`: a partition's list of ledgers as a value, and its bytes.
- `partition_store`: stores those lists by compare-and-set, in chunks.
- `replica_numbers`: numbers under which clients see bookies.
- `in_sync`: a broker's report of replicas, and its bytes.
- `in_sync_reports`: reports of all brokers.
"""

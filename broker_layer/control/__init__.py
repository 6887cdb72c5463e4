"""Leadership of partitions: the view of the cluster, the controller, and the held partitions.

- `cluster_view`: topics, brokers, controller, reports of replicas, and the broker's lease.
- `controller`: keeps every partition led.
- `assignment`: plan of leaders, and marks of unclean leaderships; pure.
- `partition_manager`: leads what the record says that this broker leads.
- `assigned_partition`: takes one partition over, serves it and closes it, as the record says.
- `partition_opener`: opens a topic's log or a coordinator's state.
- `led_partitions`: upkeep of the held partitions, and their replicas as others see them.
- `bookie_states`: bookies that are up, and whether the copies of a bookie count.
- `ledger_health`: ledgers of the led partitions that lack copies.
- `topic_changes`: creates, changes and deletes topics in the metadata.
- `ledger_erasing`: deletes what is left of deleted topics, and ledgers that no list names.
- `control_config`: limits and intervals.
"""

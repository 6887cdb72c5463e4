"""Leadership of partitions: the view of the cluster, the controller, and the held partitions.

- `cluster_view`: topics, brokers, controller and reports of replicas.
- `topic_follower`: every topic's record, read again when it changes.
- `controller`: keeps every partition led.
- `assignment`: plan of leaders; pure.
- `partition_manager`: leads what the record says that this broker leads.
- `takeover_slots`: limit of concurrent takeovers.
- `session_lease`: whether this broker may still answer, by its own clock.
- `partition_table`: partitions for metrics and the admin port.
- `partition_upkeep`: retention and reports of replicas, from time to time.
- `shown_replicas`: replicas and in-sync replicas that clients see.
- `live_bookies`: bookies that are up, and their replica numbers.
- `bookie_states`: whether the copies of a bookie count.
- `ledger_copies`: entries of a closed ledger with too few copies; pure.
- `ledger_health`: ledgers of the led partitions that lack copies.
- `topic_changes`: creates, changes and deletes topics in the metadata.
- `topic_erasing`: deletes what is left of a deleted topic.
- `ledger_sweeping`: deletes ledgers of partitions that no list names.
- `unclean_elections`: leaderships that an operator asked to be unclean.
- `control_config`: limits and intervals.
- `assigned_partition`: takes one partition over, serves it and closes it, as the record says.
- `partition_existence`: whether a partition exists in its topic's record now.
- `partition_opener`: opens a topic's log or a coordinator's state.
"""

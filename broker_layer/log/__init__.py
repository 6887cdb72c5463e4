"""Logs of partitions and states of coordinators: lists of ledgers, and their leader's state.

- `topic_log`: log of one partition as its leader holds it, `TopicLog`.
- `ledger_list`: list of ledgers under one leader epoch, and whether another broker has claimed it.
- `log_takeover`: state of a partition, built again when a leadership begins.
- `log_appender`: checks batches, appends them, and reports when they are committed.
- `pending_batches`: batches that are not committed, and recent ones.
- `roll_protocol`: decides when a log begins, rolls and ends ledgers; pure.
- `ledger_roller`: performs that, for topics and for states of coordinators.
- `log_reader`: reads by offset and by time.
- `segment_reading`: entries of a partition's ledgers, in limited pieces.
- `read_ahead`: pieces read early for consumers that catch up.
- `state_log`: durable state of a coordinator, and its loading.
- `log_services`: what all logs of a broker share.
- `topic_config_table`: every setting of a topic.
- `topic_configs`: checks of settings, and what they mean for a log.
- `state/`: producers, transactions, epochs and index.
"""

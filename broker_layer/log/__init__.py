"""Logs of partitions and states of coordinators: chains of ledgers, and their leader's state.

- `topic_log`: log of one partition as its leader holds it, `TopicLog`.
- `log_appender`: appends batches to the open ledger, and reports when they are committed.
- `batch_stamping`: a batch with its offset and epoch.
- `pending_batches`: batches that are not committed, and recent ones.
- `partition_state`: producers, transactions, epochs and index of a log.
- `producer_state`: sequences of idempotent producers.
- `transaction_index`: open and aborted transactions.
- `epoch_table`: end offset of each leader epoch.
- `offset_index`: entry of a ledger from which to look for an offset or a time.
- `state_entry`: that state as a ledger entry.
- `log_reading`: reads by offset and by time.
- `segment_reading`: entries of a partition's ledgers, in limited pieces.
- `read_ahead`: pieces read early for consumers that catch up.
- `kept_batches`: batches that were read and not returned yet.
- `ledger_chain`: list of ledgers under one leader epoch.
- `ledger_roller`: the next ledger before the old one is full, and retention.
- `ledger_closing`: close of a ledger, however long the metadata service is away.
- `log_retention`: where a log begins after retention.
- `log_takeover`: state of a partition, built again when a leadership begins.
- `state_log`: durable state of a coordinator.
- `durable_log`: interface of that log.
- `state_loading`: what a coordinator's log holds when a leadership begins.
- `log_config`: meaning of a topic's settings.
- `topic_configs`: checks of settings.
- `topic_config_table`: every setting of a topic.
- `log_services`: what all logs of a broker share.
"""

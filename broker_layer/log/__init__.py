"""Logs of partitions and states of coordinators: lists of ledgers, and their leader's state.

- `topic_log`: log of one partition as its leader holds it, `TopicLog`.
- `ledger_list`: list of ledgers under one leader epoch.
- `lead_check`: whether another broker has claimed the list.
- `log_takeover`: state of a partition, built again when a leadership begins.
- `state_log`: durable state of a coordinator.
- `durable_log`: interface of that log.
- `state_loading`: what a coordinator's log holds when a leadership begins.
- `log_services`: what all logs of a broker share.
- `appending/`: admission, commit and retention.
- `rolling/`: the ledgers that a log writes, one after the other.
- `reading/`: reads by offset and by time.
- `state/`: producers, transactions, epochs and index.
- `settings/`: settings of topics.
"""

"""Transactions: their coordinators, the markers that end them, and verification by leaders.

Leaves the durability of a coordinator's state to `broker_layer.log.state_log`, and batches of
transactions to the logs of their partitions.

- `coordinator`: transactions of the state partitions that this broker leads.
- `machine`: decides what one transactional id may do next; pure.
- `values`: limits, and one transactional id as a value: its transitions, and its stored form.
- `handlers`: messages about transactions.
- `marker_sender`: brings markers to leaders until they are stored.
- `markers`: writes markers to partitions of this broker, and sends them to others.
- `verification`: a leader's question whether a transaction is open.
- `leaders`: leader of a partition, and its address.
"""

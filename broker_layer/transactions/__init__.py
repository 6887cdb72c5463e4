"""Transactions: their coordinators, the markers that end them, and verification by leaders.

Leaves the durability of a coordinator's state to `broker_layer.log.state_log`, and batches of
transactions to the logs of their partitions.

- `coordinator`: transactions of the state partitions that this broker leads.
- `state_partition`: performs what the machines of one partition decide.
- `machine`: decides what one transactional id may do next; pure.
- `values`: one transactional id as a value, with its transitions.
- `records`: stored form of a transactional id.
- `handlers`: messages about transactions.
- `admin_handlers`: DescribeTransactions and ListTransactions.
- `marker_sender`: brings markers to leaders until they are stored.
- `marker_job`: markers of one transaction that are under way.
- `marker_messages`: WriteTxnMarkers to another broker.
- `marker_handler`: WriteTxnMarkers from another broker or a tool.
- `local_markers`: markers to partitions that this broker leads.
- `verification`: a leader's question whether a transaction is open.
- `verification_guards`: verifications that a marker overtook.
- `peer_order`: refusal of messages from a connection that was replaced.
- `view_leaders`: leader of a partition, and its address.
- `ports`: interfaces to the rest of a broker.
- `config`: limits and delays.
"""

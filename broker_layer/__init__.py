"""Topics over ledgers, spoken to in the Kafka protocol.

It leaves replication and durability of every record to `ledger_client`.
"""

"""Spark data sources and sinks over ledgers and topics.

It leaves reading and writing entries to `ledger_client`.
"""

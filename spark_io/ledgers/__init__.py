"""Spark's data source of ledgers."""

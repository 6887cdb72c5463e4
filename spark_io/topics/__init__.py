"""Spark's data source of topics."""

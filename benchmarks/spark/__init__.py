"""Benchmarks of the Spark data sources."""

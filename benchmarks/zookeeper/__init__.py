"""Benchmarks of the metadata service."""

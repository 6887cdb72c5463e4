"""Benchmarks of brokers and topics."""

"""Benchmarks of one bookie: age, restart, event loop, and many ledgers."""

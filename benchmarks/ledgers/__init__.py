"""Benchmarks of ledgers: appends, reads, failover, and the baseline of this machine."""

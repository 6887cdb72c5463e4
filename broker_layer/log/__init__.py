"""Logs of partitions and states of coordinators: chains of ledgers, and their leader's state."""

"""Latency of appends, as bookies report it, beside what happened to a ledger.

- `append_ring`: the last samples of each bookie, within bounds. Pure.
- `append_pings`: asks all bookies again and again.
- `ledger_latency`: samples of one ledger's bookies, aligned with its events. Pure.
"""

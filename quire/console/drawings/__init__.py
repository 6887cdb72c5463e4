"""Drawings of the console, as SVG. Pure.

- `patterns`: patterns, so that no meaning is in a colour alone.
- `safety_strip`: how safe the entries of a ledger are.
- `fragment_map`: bookies and fragments of a ledger.
- `entry_grid`: single entries of a fragment.
- `latency_strips`: latency of appends at bookies over time.
"""

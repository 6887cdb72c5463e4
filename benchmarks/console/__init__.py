"""Benchmarks of the console.

- `console_pages`: times of its pages with many ledgers, many fragments, and a bookie that hangs.
- `console_process`: a console to measure.
- `stored_ledgers`: ledgers that have metadata only.
"""

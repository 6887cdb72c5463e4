"""Comparisons of ways to replicate, on real processes.

- `compare/`: real processes under faults.
"""

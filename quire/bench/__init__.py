"""Comparisons of ways to replicate, on real processes and in a model of months.

- `compare/`: real processes under faults.
- `fleet/`: a fleet over months, simulated.
"""

"""Ledgers that a log writes, one after the other: the first, the next, and their end.

- `roll_protocol`: decides what to do next; pure.
- `roll_events`: its events and actions.
- `ledger_roller`: performs the actions, for topics and for states of coordinators.
"""

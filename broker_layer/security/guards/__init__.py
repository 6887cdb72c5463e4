"""Checks of each API before its handler: refuse a request, or the parts of it that are not allowed.

- `guard`: type of a guard, and its call.
- `guarded_handlers`: the guard of each API, and handlers behind their guards.
- `topic_guards`: topics and their records.
- `group_guards`: consumer groups and their offsets.
- `offset_fetch_guard`: committed offsets.
- `transaction_guards`: producers and transactions.
- `config_guards`: settings.
- `cluster_guards`: what needs a right on the cluster.
"""

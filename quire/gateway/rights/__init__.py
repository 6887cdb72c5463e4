"""Decisions of a gateway: which metadata a client may read and change. Pure.

- `verdict`: clients, what is known of the store, and decisions as values.
- `decisions`: decision about a request, by the roots of its paths.
- `ledger_rules`: nodes of ledgers.
- `ledger_changes`: the right that a change of a ledger's metadata needs.
- `chain_rules`: nodes of chains.
- `chain_changes`: the right that a change of a chain's head needs.
- `id_rules`: ids, deletions, and registrations of clients.

Leaves reading the values, and acting, to `quire.gateway.requests`.
"""

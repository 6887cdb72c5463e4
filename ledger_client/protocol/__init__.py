"""Decisions of the protocol: synchronous, pure, driven by events, performed by the shells.

- `append`: writer of one open ledger (rules 4 to 6).
- `append_events`: its events, actions and errors.
- `append_options`: its options.
- `acks`: batches that are not settled, and the LAC that follows.
- `ensemble`: failed and parked members of an ensemble.
- `membership`: what becomes of them: replace, leave or wait.
- `suspicion`: recent latencies, and bookies that are silent for too long (rule 5.7).
- `read`: replica to read from, and what answers mean (rule 8.2).
- `recovery`: recovery of one ledger (rule 7), and when enough bookies are fenced.
- `recovery_events`: its events and actions.
- `recovery_read`: which entries exist, and where the ledger ends.
- `recovery_write`: write back, and the bookies that then have it.
- `copy`: metadata before and after a copy, entries sent, and what answers mean (rule 9.1).
- `cutting`: batches of a recovery or a copy.
"""

"""Decisions of the protocol: synchronous, pure, driven by events, performed by the shells.

- `append`: writer of one open ledger (rules 4 to 6).
- `append_events`: its events and actions.
- `append_options`: its options.
- `append_errors`: errors that end a writer.
- `acks`: batches that are not settled, and the LAC that follows.
- `ensemble`: failed and parked members of an ensemble.
- `membership`: what becomes of them: replace, leave or wait.
- `suspicion`: bookies that are silent for too long (rule 5.7).
- `known_answers`: answers that say what a bookie holds.
- `read`: replica to read from, and what answers mean (rule 8.2).
- `recovery`: recovery of one ledger (rule 7).
- `recovery_events`: its events and actions.
- `recovery_fence`: when enough bookies are fenced.
- `recovery_read`: which entries exist, and where the ledger ends.
- `recovery_write`: write back, and the bookies that then have it.
- `copy`: metadata before and after a copy (rule 9.1).
- `copy_piece`: entries that a copy sends on, and the batches of them.
- `copy_events`: answers of the source and the target of a copy.
- `cutting`: batches of a recovery or a copy.
"""

"""Simulates months of failures of large fleets, per replication configuration.

Leaves messages to `tests/simulation`: here the steps are failures, changes, copies and takeovers.

- `__main__`: `python -m benchmarks.fleet`.
- `command`: its options and its tables.
- `assumptions`: what a simulation assumes, with defaults and units.
- `configurations`: replication configurations that are compared.
- `history`: faults drawn from a seed, the same for every configuration.
- `simulation`: plays one history on one fleet.
- `world`: what all parts of one fleet share.
- `agenda`: events in the order of time.
- `bookies`: bookies that are silent, slow, lost or offered to the placement.
- `ledgers`: one ledger, and one writer's seat.
- `appending`: writers: failures, ensemble changes, appends that stop.
- `recovering`: writers that die, and recoveries.
- `copying`: catch-up of members that missed entries.
- `repairing`: repair as it is built: what, when and by whom.
- `repair_worker`: copies of one repair worker, and their speed.
- `gaps`: what silent members miss, and how they get it.
- `tracking`: entries with too few copies, integrated over time.
- `measures`: sums of one simulated month.
- `results`: figures of runs, and their spread.
- `running`: one process per configuration and seed.
"""

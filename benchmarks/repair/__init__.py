"""Benchmarks of repair.

- `copying`: one worker copies what a lost bookie held, compared with `append_many`.
- `live_writer`: latencies of a writer before and during a repair at the default throttle.
- `losing`: the cluster, the worker and the loss of a bookie.
- `planning`: the auditor's plan for the departure of a bookie, and its memory.
- `index_load`: process that holds the auditor's index of many ledgers.
"""

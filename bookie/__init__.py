"""One storage node. It stores and returns entries, keeps fences, and never answers more than it can
prove.

Leaves replication to `ledger_client`.

- `bookie_process`: one bookie, put together from its disk, store and options; taken apart in order.
- `main`: `run` and `format` as processes; the only place that builds a real disk, store and rng.
- `options`: options of a bookie, and of several bookies on one machine.
- `config`: limits of the storage, each with its unit.
- `queued_adds`: account of the bytes of adds that wait, and its limits.
- `errors`: what can go wrong inside a bookie.
- `files/`: disk and key-value store.
- `log/`: write-ahead log.
- `index/`: places of entries, and ledger states.
- `storage/`: what a bookie does with ledgers, over log and index.
- `scrubber`: slow check of everything that is stored, and reports of damaged entries.
- `identity/`: cookie, position and limbo.
- `server/`: network and admin port.
- `wire/`: bytes between clients and bookies; the only part that clients import.
"""

"""The `quire` command and the local cluster: what a person starts.

Leaves the replication protocol to `ledger_client`, the storage node to `bookie`, topics to
`broker_layer` and coordination to `metadata`.

- `local_cluster`: a complete cluster on this machine, `LocalCluster`.
- `bookie_group`: several bookies of one machine, started again when they end.
- `bookie_check`: reads the log of a stopped bookie, and reports damage.
- `admin_api`: calls to a bookie's admin server.
- `assessment`: ledgers that lack copies, and records that disagree.
- `copy_counts`: copies that remain while some bookies are down.
- `claims`: a ledger that one process creates and another fills.
- `ledger_file`: a ledger as one file, for export and import.
- `pipelined_append`: groups of entries without waiting for each.
- `demo`: the guided demo.
- `demo_source`: what the demo appends.
- `demo_takeover`: the demo's takeover of a live writer.
- `demo_view`: the demo's display.
- `errors`: failures of commands, and exit statuses.
- `cli/`: the command line.
- `local/`: processes of a local cluster.
- `inspection/`: directory of a stopped bookie.
- `bench/`: comparisons of ways to replicate.
"""

"""The `quire` command and the local cluster: what a person starts.

Leaves the replication protocol to `ledger_client`, the storage node to `bookie`, topics to
`broker_layer` and coordination to `metadata`.

- `local_cluster`: a complete cluster on this machine, `LocalCluster`.
- `bookie_group`: several bookies of one machine, started again when they end.
- `bookie_check`: reads the log of a stopped bookie, and reports damage.
- `admin_api`: calls to a bookie's admin server.
- `assessment`: ledgers that lack copies, and records that disagree.
- `health`: health of a cluster: its bookies, and the copies of its ledgers.
- `findings`: problems that a check found, and groups of ledgers with the same one.
- `copy_counts`: copies that remain while some bookies are down.
- `unknown_holdings`: what bookies hold and the metadata does not know.
- `drain_plan`: what draining a bookie would move.
- `repair_explanation`: what a ledger lacks, and why it is not repaired yet.
- `damaged_parts`: damaged entries of a ledger, and whether each needs a repair.
- `scrub_summary`: state of each bookie's scrub.
- `repair_beside`: process of repair beside a bookie.
- `repair_summary`: state of repair in one sentence, and its figures.
- `claims`: a ledger that one process creates and another fills.
- `ledger_file`: a ledger as one file, for export and import.
- `pipelined_append`: groups of entries without waiting for each.
- `demo`: the guided demo.
- `demo_source`: what the demo appends.
- `demo_takeover`: the demo's takeover of a live writer.
- `demo_view`: the demo's display.
- `server_versions`: oldest version of a cluster's servers, and whether an upgrade is complete.
- `missing_packages`: packages that are not installed, and the extra that installs them.
- `errors`: failures of commands, and exit statuses.
- `cli/`: the command line.
- `local/`: processes of a local cluster.
- `console/`: pages of a cluster for a browser.
- `zookeeper/`: ZooKeeper as a server of its own.
- `watching/`: metrics of all servers, and a bundle for support.
- `inspection/`: directory of a stopped bookie.
- `bench/`: comparisons of ways to replicate.
"""

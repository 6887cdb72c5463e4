"""The `quire` command and the local cluster: what a person starts.

Leaves the replication protocol to `ledger_client`, the storage node to `bookie`, topics to
`broker_layer` and coordination to `metadata`.

Lowest layer, which imports no other part of Quire but these:

- `addresses`: joins and splits host and port.
- `copyable`: errors that can be copied and pickled.
- `distribution`: name and version of what pip installs.
- `options`: how options are declared, and read from flags, files and variables.
- `identity/`: certificates, logins and secrets, of clients and servers.
- `tracing/`: spans of OpenTelemetry.
- `server/`: what all servers share: listening, connections, options, metrics, logs.

Services beside bookies and brokers:

- `repair/`: makes copies of entries again after bookies are lost or drained.
- `gateway/`: metadata for clients that do not reach ZooKeeper.
- `zookeeper/`: ZooKeeper as a server of its own.

What a person uses:

- `local_cluster`: a complete cluster on this machine, `LocalCluster`.
- `local/`: its processes.
- `cli/`: the command line.
- `console/`: pages of a cluster for a browser.
- `operate/`: health, summaries and plans, which command line and console both show.
- `offline/`: directory of a stopped bookie.
- `bench/`: comparisons of ways to replicate.
- `demo`: the guided demo.
- `missing_packages`: packages that are not installed, and the extra that installs them.
- `errors`: failures of commands, and exit statuses.
"""

"""What an operator asks of a cluster. The command line and the console both show it.

- `fields`: values as JSON, and fields as people read them.
- `as_json`: records of the metadata as JSON.
- `admin_api`: calls to a bookie's admin server.
- `assessment`: ledgers that lack copies, and records that disagree.
- `health`: health of a cluster: its bookies, and the copies of its ledgers.
- `faulty_servers`: servers that are down or cannot be reached. Pure.
- `reachability`: whether the servers of a cluster can be reached, as a client reaches them.
- `findings`: problems that a check found, and groups of ledgers with the same one.
- `held_ledgers`: ledgers that bookies hold, whether or not the metadata knows them.
- `ledger_pass`: one pass over the metadata of all ledgers.
- `bookie_changes`: changes of bookies, with the checks before them.
- `drain_plan`: what draining a bookie would move.
- `repair`: state of repair, its jobs, and why a ledger is not repaired yet.
- `brokers`: access to the brokers of a cluster.
- `topics`: topics, their partitions, leaders and offsets.
- `appends`: appends in groups, and a ledger that one process creates and another fills.
- `ledger_file`: a ledger as one file, for export and import.
- `watch`: readings of all servers that are up, and what each does per second.
"""

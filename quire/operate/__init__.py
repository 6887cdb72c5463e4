"""What an operator asks of a cluster. The command line and the console both show it.

Leaves questions and formats to `quire.cli` and `quire.console`.

- `fields`: values as JSON, and fields as people read them.
- `as_json`: records of the metadata as JSON.
- `admin_api`: calls to a bookie's admin server.
- `bookie_check`: reads the log of a stopped bookie, and reports damage.
- `assessment`: ledgers that lack copies, and records that disagree.
- `health`: health of a cluster: its bookies, and the copies of its ledgers.
- `findings`: problems that a check found, and groups of ledgers with the same one.
- `unknown_holdings`: what bookies hold and the metadata does not know.
- `ledger_pass`: one pass over the metadata of all ledgers.
- `bookie_changes`: changes of bookies, with the checks before them.
- `drain_plan`: what draining a bookie would move.
- `repair_explanation`: what a ledger lacks, and why it is not repaired yet.
- `repair_summary`: state of repair and of scrubs in one sentence, and its figures.
- `repair_jobs`: published jobs, and jobs that an operator publishes.
- `brokers`: access to the brokers of a cluster.
- `topics`: topics, their partitions, leaders and offsets.
- `claims`: a ledger that one process creates and another fills.
- `ledger_file`: a ledger as one file, for export and import.
- `pipelined_append`: groups of entries without waiting for each.
- `server_versions`: oldest version of a cluster's servers, and whether an upgrade is complete.
- `watch`: readings of all servers that are up, and what each does per second.
- `bundle`: one file with what is known of a cluster, without secrets.
"""

"""Repair: brings every ledger back to its write quorum after bookies are lost or drained.

Imports the ledger client and the metadata; bookies and brokers do not import it.

- `standing`: standing of each bookie. Pure.
- `departures`: which bookies count as gone. Pure.
- `orderly_stops`: which bookies stopped in order.
- `spread`: spread of copies over racks and hosts, and moves that make it better. Pure.
- `needs`: what one ledger lacks. Pure.
- `ledger_index`: all ledgers of a cluster, in little memory. Pure.
- `publishing`: which jobs to publish. Pure.
- `retries`: when a blocked job is tried again. Pure.
- `bad_entries`: damaged and missing entries that can be repaired where they are. Pure.
- `progress`: speed, and time left. Pure.
- `copied_bytes`: bytes copied for one ledger, over all its copies. Pure.
- `outcome`: outcomes of an attempt to repair a ledger.
- `losses/`: accepted losses, and ends of recoveries that cannot be decided.
- `ledger_access`: keys of a ledger, without its password.
- `pacing/`: how fast one worker may copy.
- `range_repair`: repair of the damaged and missing entries of one ledger.
- `missing/`: which members of closed ledgers lack entries that they must hold.
- `ledger_repair`: repair of one ledger.
- `open_ledger_repair`: end of a ledger whose writer is gone.
- `damaged_ledgers`: ledgers whose damaged entries need a repair.
- `grouped_calls`: calls for many ledgers or jobs, some at a time.
- `ledger_pass`: reading of all ledgers into the index.
- `unnamed_bookies`: bookies that drained, or never started.
- `worker`: repairs published ledgers, several at a time.
- `auditor`: finds the ledgers that need repair, and publishes them.
- `repair_process`: auditor and worker of one process.
- `main`: that process; the only place that builds its real store and rng.
- `options`: its options.

Source: protocol section 9; docs/repair.md.
"""

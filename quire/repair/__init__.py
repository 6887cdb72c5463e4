"""Repair: brings every ledger back to its write quorum after bookies are lost or drained.

Imports the ledger client and the metadata; bookies and brokers do not import it.

- `standing`: standing of each bookie. Pure.
- `departures`: which bookies count as gone. Pure.
- `spread`: spread of copies over racks and hosts, and moves that make it better. Pure.
- `needs`: what one ledger lacks. Pure.
- `ledger_index`: all ledgers of a cluster, in little memory. Pure.
- `publishing`: which jobs to publish, when to try again, and how fast they are done. Pure.
- `bad_entries`: damaged and missing entries that can be repaired where they are. Pure.
- `losses`: entries without a copy, and their accepted loss.
- `undecided_end`: close of a ledger whose recovery cannot be decided.
- `rescue`: ledgers that bookies hold and the metadata does not know.
- `pacing`: how fast one worker may copy.
- `attempts`: what the attempts to repair a ledger share: its keys, and outcomes.
- `range_repair`: repair of the damaged and missing entries of one ledger.
- `missing_copies`: which members of closed ledgers lack entries that they must hold.
- `ledger_repair`: repair of one ledger.
- `open_ledger_repair`: end of a ledger whose writer is gone.
- `ledger_reads`: reads of ledgers, and of what shows that bookies can be drained or removed.
- `peer_probes`: which registered bookies this machine does not reach.
- `worker`: repairs published ledgers, several at a time.
- `auditor`: finds the ledgers that need repair, and publishes them.
- `repair_process`: auditor and worker of one process.
- `main`: that process; the only place that builds its real store and rng.
- `options`: its options.

Source: protocol section 9; docs/repair.md.
"""

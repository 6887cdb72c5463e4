"""What a bookie does with ledgers and entries, over the log and the index.

- `bookie_storage`: adds, reads, fences, deletions and checkpoints.
- `opening`: loads states, replays the log and decides on limbo at a start.
- `checkpoints`: one checkpoint: changes in memory move to the index, then the mark does.
- `admission`: whether a request for a ledger may be carried out.
- `commits`: effect and answers of each group once it is durable.
- `ledgers`: ledger states in memory, and LAC watches.
- `cold_ledgers`: requests that wait for the state of a ledger, from the index or the metadata.
- `horizon`: limit of the number of tombstones, and standing of an unknown ledger (rule 10.3).
- `ledger_reads`: LAC, entries and ranges of a ledger.
- `reading`: ranges of entries, from memory or by few disk reads; damaged ranges.
- `recent`: newest batches in memory, for tailing readers.
- `overlapping`: batches that name entries which may be stored already, compared.
- `answers`: values that the storage answers with.
- `upkeep`: checkpoints, disk marks, reserve and cleaning when they are due.
- `cleaning`: plan of segments to drop or rewrite; pure.
- `cleaner`: carries the plan out.
- `rebuild`: search for runs in every segment when the index cannot prove them.
- `disk_watch`: room on the disks; when one is full and what may be written; a disk that hangs.
- `writability`: reasons for read-only and limbo.
"""

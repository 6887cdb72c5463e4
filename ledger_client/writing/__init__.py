"""Writer of an open ledger: batches, acknowledgements and ensemble changes.

- `writer`: handle of a ledger that is being written.
- `writer_services`: what all writers of one client share.
- `append_shell`: performs the append protocol's actions.
- `window`: limit of unconfirmed entries.
- `admission`: ids and batches of entries, without any wait.
- `append_range`: many entries as one range of ids.
- `batcher`: entries into batches.
- `outbox`: bytes of batches until they are confirmed.
- `confirmations`: futures of appends, resolved in order.
- `first_replica_waiters`: wait until one bookie has an entry.
- `full_replication`: entries on their complete write set, and stretches that are not.
- `watchdog`: one timer for all writers of a client.
- `check_schedule`: times of the next checks.
- `bookie_probes`: bookies for which writers wait.
- `writer_watch`: one writer between its appends.
- `in_sync_members`: members that lag, leave, return or join.
- `stored_watch`: an in-sync ledger that another client ends.
- `metadata_reads`: limited reads of one client's ledgers.
- `ledger_turns`: turns of one client's ledgers, a limited number at once.
- `slices`: calls for many ledgers, in steps of limited time.
- `writer_news`: departed bookies and spares, for all writers.
"""

"""Writer of an open ledger: batches, acknowledgements and ensemble changes.

- `writer`: handle of a ledger that is being written.
- `admission`: ids of entries, and their batches.
- `outbox`: bytes of batches until they are confirmed, and how many there may be.
- `append_shell`: performs the append protocol's actions.
- `confirmations`: what callers wait for, resolved in order.
- `writer_watch`: deadlines, returns and an idle LAC, between appends.
- `in_sync_members`: members that lag, leave, return or join.
- `writer_services`: what all writers of one client share.
- `watchdog`: one timer for all writers of a client.
- `bookie_news`: departed bookies, spares and returns, for all writers.
- `pacing`: work for many ledgers of a client, in slices, in turns and at a limited rate.
"""

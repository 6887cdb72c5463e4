"""Blocking handles, for callers without an event loop.

- `sync_loop`: one event loop in one background thread.
- `call_order`: turns of the threads that append to one writer.
- `sync_handles`: writer and reader of `ledger_client.sync`.
- `sync_chain`: chain of `ledger_client.sync`.
"""

"""One ledger client per process and cluster, for all tasks of the process.

Leaves everything else to `ledger_client.sync`: Spark's Python workers are forked, reused by many
tasks and killed without notice, so a client is opened at its first use in a process and never
closed.

A worker collects garbage after each task, which visits all modules that it has imported: 50 ms
with those of a client, a third of its time in a scan. So what a task finds imported is kept out of
later collections.

Invariants: a client is used only in the process that opened it; at most CLIENTS_MAX are kept.
"""

import gc
import logging
import os
from typing import Final

from ledger_client import ClientEvent, LedgerUnreadable, ReplicaDamaged
from ledger_client.sync import LedgerClient
from spark_io.common_options import ClientOptions
from spark_io.sentence_first import is_worker

CLIENTS_MAX: Final = 8

_log = logging.getLogger(__name__)
_clients: dict[tuple[int, ClientOptions], LedgerClient] = {}


def client_of(options: ClientOptions) -> LedgerClient:
    """Return this process's client of a cluster."""
    key = os.getpid(), options
    client = _clients.pop(key, None)
    if client is None:
        if is_worker():  # the process is not the user's
            gc.collect()
            gc.freeze()
        client = LedgerClient(options.metadata, config=options.config, on_event=_log_event)
    _clients[key] = client  # the most recently used is the last
    while len(_clients) > CLIENTS_MAX:
        oldest = next(iter(_clients))
        _clients.pop(oldest).close()
    return client


def _log_event(event: ClientEvent) -> None:
    if isinstance(event, ReplicaDamaged):
        _log.warning(
            "bookie %s returned a damaged copy of entry %d of ledger %d: another one was read",
            event.bookie_id,
            event.entry_id,
            event.ledger_id,
        )
    elif isinstance(event, LedgerUnreadable):
        text = "ledger %d is left out: its metadata cannot be read (%s)"
        _log.warning(text, event.ledger_id, event.reason)

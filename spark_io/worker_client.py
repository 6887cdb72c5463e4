"""Keeps one ledger client per process and cluster, for all tasks that run in it.

Leaves everything else to `ledger_client.sync`: Spark's Python workers are forked, reused by many
tasks and killed without notice, so a client is made at its first use in a process and never closed.

Invariants: a client is used in the process that made it alone; at most CLIENTS_MAX are kept.
"""

import logging
import os
from typing import Final

from ledger_client import ClientEvent, ReplicaDamaged
from ledger_client.sync import LedgerClient
from spark_io.common_options import ClientOptions

CLIENTS_MAX: Final = 8

_log = logging.getLogger(__name__)
_clients: dict[tuple[int, ClientOptions], LedgerClient] = {}


def client_of(options: ClientOptions) -> LedgerClient:
    """Return this process's client of a cluster."""
    key = os.getpid(), options
    client = _clients.pop(key, None)
    if client is None:
        client = LedgerClient(options.metadata, config=options.config, on_event=_tell)
    _clients[key] = client  # the one used last stands last
    while len(_clients) > CLIENTS_MAX:
        oldest = next(iter(_clients))
        _clients.pop(oldest).close()
    return client


def _tell(event: ClientEvent) -> None:
    if isinstance(event, ReplicaDamaged):
        _log.warning(
            "bookie %s returned a damaged copy of entry %d of ledger %d: another one was read",
            event.bookie_id,
            event.entry_id,
            event.ledger_id,
        )

"""Scans of the index's stored runs over all ledgers.

Leaves the stored form of a run, and look-ups within one ledger, to `bookie.index.index_pages`.
Source: storage design, "Index".
"""

from typing import NamedTuple

from bookie.files.index_store import Transaction
from bookie.index.index_pages import RUN_KEY, decode_run
from bookie.index.index_runs import Run
from metadata.ids import NO_ENTRY


class StoredRun(NamedTuple):
    """One stored run, as found by a scan over all ledgers."""

    ledger_id: int
    last: int
    run: Run | None
    """None when the value is damaged."""
    previous: int
    """Last id of the run before it, from its value; NO_ENTRY when the value is damaged."""


def scan_runs(transaction: Transaction, after: tuple[int, int], limit: int) -> list[StoredRun]:
    """Return the next stored runs of all ledgers after (ledger id, last id); (-1, -1) starts."""
    ledger_id, last = after
    start = b"r" + bytes(8) if ledger_id < 0 else RUN_KEY.pack(b"r", *after) + b"\0"
    found: list[StoredRun] = []
    for key, value in transaction.scan(start, limit):
        if not key.startswith(b"r"):
            break
        if len(key) == RUN_KEY.size:
            _, ledger_id, last = RUN_KEY.unpack(key)
            run, previous = decode_run(key, value) or (None, NO_ENTRY)
            found.append(StoredRun(ledger_id, last, run, previous))
    return found


def highest_run(transaction: Transaction, ledger_id: int) -> int:
    """Return the highest entry id in a ledger's stored runs, NO_ENTRY without one."""
    pair = transaction.before(RUN_KEY.pack(b"r", ledger_id, 2**64 - 1))
    if pair is None or len(pair[0]) != RUN_KEY.size:
        return NO_ENTRY
    prefix, found_ledger_id, last = RUN_KEY.unpack(pair[0])
    is_of_ledger = prefix == b"r" and found_ledger_id == ledger_id
    return last if is_of_ledger else NO_ENTRY

"""Batches for the storage tests."""

import random

from bookie.wire.batch import BatchView, build_batch
from metadata.ids import EntryId, LedgerId


def make_batch(
    ledger_id: int,
    first_entry_id: int,
    payloads: list[bytes],
    *,
    lac: int = -1,
    mac_key: bytes | None = None,
    length_before: int = 0,
) -> BatchView:
    """Return a batch with a fixed digest seed."""
    data = build_batch(
        LedgerId(ledger_id),
        EntryId(first_entry_id),
        EntryId(lac),
        length_before,
        payloads,
        ledger_id,
        mac_key,
    )
    return BatchView(data)


def payload_of(ledger_id: int, entry_id: int, size: int = 24) -> bytes:
    """Return the payload of an entry in most tests."""
    return random.Random(f"{ledger_id} {entry_id}").randbytes(size)


def make_run(ledger_id: int, first: int, count: int, *, lac: int = -1, size: int = 24) -> BatchView:
    """Return a batch of these payloads."""
    payloads = [payload_of(ledger_id, first + i, size) for i in range(count)]
    return make_batch(ledger_id, first, payloads, lac=lac)

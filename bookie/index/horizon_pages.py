"""Stored horizon of ledger ids, and removal of the tombstones below it.

Leaves the time and the amount of trimming to `bookie.storage.horizon`.

Format: key `h`, value: ledger id i64, then the seal of `bookie.index.index_pages`.
Invariants: one transaction removes tombstones and raises the horizon; the count of the states and
the XOR of their CRCs cover the horizon, so that a lost horizon is noticed.
Source: protocol rule 10.3.
"""

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from bookie.errors import DiskFailedError
from bookie.files.index_store import StoreTransaction
from bookie.index import index_pages

_HORIZON_KEY: Final = b"h"
_HORIZON = struct.Struct("<q")


def read_horizon(transaction: StoreTransaction) -> tuple[int, bytes] | None:
    """Return the horizon (rule 10.3) and its stored form: -1 and b"" without a horizon; None if it
    is damaged.
    """
    value = transaction.get(_HORIZON_KEY)
    if value is None:
        return -1, b""
    plain = index_pages.unseal(_HORIZON_KEY, value, _HORIZON.size)
    return None if plain is None else (int(_HORIZON.unpack(plain)[0]), value)


def remove_horizon(transaction: StoreTransaction) -> None:
    """Remove a damaged horizon. The caller ensures that no unknown ledger counts as new."""
    transaction.delete(_HORIZON_KEY)


def trim_states(transaction: StoreTransaction, ledger_ids: Iterable[int]) -> None:
    """Remove stored states and raise the horizon to the highest of their ids. The count of the
    states and the XOR of their CRCs cover the horizon too.
    """
    meta = index_pages.require_meta(transaction)
    found = read_horizon(transaction)
    if found is None:
        raise DiskFailedError("index", "the horizon of deleted ledgers is damaged")
    horizon, stored = found
    count, xor = meta.state_count, meta.state_xor
    for ledger_id in ledger_ids:
        key = index_pages.state_key(ledger_id)
        old = transaction.get(key)
        if old is not None:
            count, xor = count - 1, xor ^ index_pages.crc_of_state(old)
            transaction.delete(key)
            horizon = max(horizon, ledger_id)
    value = index_pages.seal(_HORIZON_KEY, _HORIZON.pack(horizon))
    transaction.put(_HORIZON_KEY, value)
    xor ^= index_pages.crc_of_state(value) ^ (index_pages.crc_of_state(stored) if stored else 0)
    index_pages.write_meta(
        transaction, replace(meta, state_count=count + (not stored), state_xor=xor)
    )

"""Segments in the index's store: the live bytes of each, what cleaning measured of it, and those
that hold damage.

Format: see `bookie.index.index_pages`, keys `g`, `c` and `d`.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from bookie.files.index_store import StoreTransaction
from bookie.index.index_pages import NUMBER_KEY, SCAN_PAIRS, seal, unseal
from metadata.ids import LEDGER_ID_MAX

LIVE_BYTES: Final = b"g"
DAMAGED: Final = b"d"
MEASURED: Final = b"c"
_MEASURED = struct.Struct("<II")
_VALUE_BYTES: Final = {LIVE_BYTES: 8, DAMAGED: 0, MEASURED: _MEASURED.size}


class Measured(NamedTuple):
    """Facts about a sealed segment that never change, and that take a walk over its footer."""

    record_count: int
    """Number of adds records."""
    mean_run_bytes: int
    """Mean bytes of its runs, with adjacent records joined; 0 for a rewritten segment."""


def scan_segments(
    transaction: StoreTransaction, after: int, kind: bytes
) -> list[tuple[int, int | None]]:
    """Return the next segments that have a value of this kind, and the value, 0 for an empty one.
    None: the value is damaged, and the number may be damaged too.
    """
    if after >= LEDGER_ID_MAX:
        return []
    pairs = transaction.scan(NUMBER_KEY.pack(kind, after + 1), SCAN_PAIRS)
    return [
        (int.from_bytes(key[1:], "big"), _decode(key, value))
        for key, value in pairs
        if key.startswith(kind) and len(key) == NUMBER_KEY.size
    ]


def _decode(key: bytes, value: bytes) -> int | None:
    plain = unseal(key, value, _VALUE_BYTES[key[:1]])
    return None if plain is None else int.from_bytes(plain, "little")


def name_segments(transaction: StoreTransaction, numbers: Iterable[int]) -> None:
    """Add segments, with no live bytes, to an index that does not list them yet."""
    for number in numbers:
        _put_live(transaction, NUMBER_KEY.pack(LIVE_BYTES, number), 0)


def add_live_bytes(transaction: StoreTransaction, changes: dict[int, int]) -> None:
    """Add to segments' live bytes; a damaged value counts as 0, because they are only a hint."""
    for number, change in changes.items():
        if change:
            key = NUMBER_KEY.pack(LIVE_BYTES, number)
            value = transaction.get(key)
            count = 0 if value is None else _decode(key, value) or 0
            _put_live(transaction, key, max(0, count + change))


def put_measured(transaction: StoreTransaction, measured: dict[int, Measured]) -> None:
    """Store what was measured of some segments."""
    for number, each in measured.items():
        key = NUMBER_KEY.pack(MEASURED, number)
        transaction.put(key, seal(key, _MEASURED.pack(*each)))


def measured_of(value: int) -> Measured:
    """Return what `scan_segments` has found of a segment with MEASURED."""
    return Measured(*_MEASURED.unpack(value.to_bytes(_MEASURED.size, "little")))


def remove_segments(transaction: StoreTransaction, removed: Iterable[int]) -> dict[int, int]:
    """Remove the live bytes of removed segments and what was measured of them; return the live
    bytes of all others.
    """
    for number in removed:
        transaction.delete(NUMBER_KEY.pack(LIVE_BYTES, number))
        transaction.delete(NUMBER_KEY.pack(MEASURED, number))
    live: dict[int, int] = {}
    after = -1
    while found := scan_segments(transaction, after, LIVE_BYTES):
        live |= {number: count or 0 for number, count in found}
        after = found[-1][0]
    return live


def change_damaged(
    transaction: StoreTransaction, damaged: Iterable[int], removed: Iterable[int]
) -> None:
    """Store which segments hold damage, and drop those that were removed."""
    for number in damaged:
        key = NUMBER_KEY.pack(DAMAGED, number)
        transaction.put(key, seal(key, b""))
    for number in removed:
        transaction.delete(NUMBER_KEY.pack(DAMAGED, number))


def _put_live(transaction: StoreTransaction, key: bytes, count: int) -> None:
    transaction.put(key, seal(key, count.to_bytes(_VALUE_BYTES[LIVE_BYTES], "little")))

"""Segments in the index's store: the live bytes of each, and those that hold damage.

Format: see `bookie.index.index_pages`, keys `g` and `d`.
"""

from collections.abc import Iterable
from typing import Final

from bookie.files.index_store import StoreTransaction
from bookie.index.index_pages import NUMBER_KEY, SCAN_PAIRS, seal, unseal
from metadata.ids import LEDGER_ID_MAX

LIVE_BYTES: Final = b"g"
DAMAGED: Final = b"d"
_VALUE_BYTES: Final = {LIVE_BYTES: 8, DAMAGED: 0}


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


def remove_live_bytes(transaction: StoreTransaction, removed: Iterable[int]) -> dict[int, int]:
    """Remove the live bytes of removed segments; return the live bytes of all others."""
    for number in removed:
        transaction.delete(NUMBER_KEY.pack(LIVE_BYTES, number))
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

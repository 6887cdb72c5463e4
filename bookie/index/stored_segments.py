"""Lists of segments stored in the index: all segments, and those that hold damage.

Leaves live bytes to `bookie.index.index_pages`.

Format: see `bookie.index.index_pages`, keys `g` and `d`.
"""

import struct
from collections.abc import Iterable
from typing import Final

from bookie.files.index_store import Transaction
from bookie.index.index_pages import SCAN_PAIRS, seal, unseal

LIVE_BYTES: Final = b"g"
DAMAGED: Final = b"d"
_NUMBER_KEY = struct.Struct(">cQ")
_VALUE_BYTES: Final = {LIVE_BYTES: 8, DAMAGED: 0}


def scan_numbers(transaction: Transaction, kind: bytes, after: int) -> list[tuple[int, bool]]:
    """Return the next segments that have a value of this kind, and whether the value is intact: if
    it is not, the number may be damaged too.
    """
    found = []
    for key, value in transaction.scan(_NUMBER_KEY.pack(kind, after + 1), SCAN_PAIRS):
        if key.startswith(kind) and len(key) == _NUMBER_KEY.size:
            is_whole = unseal(key, value, _VALUE_BYTES[kind]) is not None
            found.append((int.from_bytes(key[1:], "big"), is_whole))
    return found


def name_segments(transaction: Transaction, numbers: Iterable[int]) -> None:
    """Add segments, with no live bytes, to an index that does not list them yet."""
    for number in numbers:
        key = _NUMBER_KEY.pack(LIVE_BYTES, number)
        transaction.put(key, seal(key, bytes(_VALUE_BYTES[LIVE_BYTES])))


def change_damaged(
    transaction: Transaction, damaged: Iterable[int], removed: Iterable[int]
) -> None:
    """Store which segments hold damage, and drop those that were removed."""
    for number in damaged:
        key = _NUMBER_KEY.pack(DAMAGED, number)
        transaction.put(key, seal(key, b""))
    for number in removed:
        transaction.delete(_NUMBER_KEY.pack(DAMAGED, number))

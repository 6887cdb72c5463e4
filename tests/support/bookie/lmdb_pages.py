"""Places of the keys in the branch pages of an LMDB file, for tests that damage them.

Format of LMDB 0.9 on a 64-bit little-endian machine. A page of 4,096 bytes begins with its number
u64, 2 bytes, flags u16 (1: a branch page), and the end of its array of offsets u16; the array of
u16 begins at byte 16. A node is the number of a child page u48, the size of its key u16, and the
key. The first node of a branch page has no key.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from bookie.index import index_pages

PAGE_BYTES: Final = 4_096
_HEADER: Final = struct.Struct("<QHHHH")
_BRANCH: Final = 1
_NODE_BYTES: Final = 8


class BranchKey(NamedTuple):
    """One key that divides the keys of two child pages."""

    offset: int
    """Place of the key in the file."""
    key: bytes


def branch_keys(data: bytes) -> list[BranchKey]:
    """Return the keys of every branch page in a file, also of pages that are no longer in use."""
    return [
        key
        for start in range(0, len(data) - PAGE_BYTES + 1, PAGE_BYTES)
        for key in _keys_of_page(data, start)
    ]


def _keys_of_page(data: bytes, start: int) -> list[BranchKey]:
    number, _, flags, array_end, _ = _HEADER.unpack_from(data, start)
    if number != start // PAGE_BYTES or flags != _BRANCH or array_end > PAGE_BYTES:
        return []
    found: list[BranchKey] = []
    for place in range(_HEADER.size + 2, array_end, 2):
        (node,) = struct.unpack_from("<H", data, start + place)
        (size,) = struct.unpack_from("<H", data, start + node + 6)
        offset = start + node + _NODE_BYTES
        found.append(BranchKey(offset, data[offset : offset + size]))
    return found


def hide_a_state(path: Path) -> int:
    """Raise each branch key of a ledger's state to the ledger above it; return one such ledger.

    Its state is the first in its leaf page, and a search for it now ends in the page before.
    Ledger ids below 255 only.
    """
    data = bytearray(path.read_bytes())
    hidden: list[int] = []
    for offset, key in branch_keys(bytes(data)):
        ledger_id = int.from_bytes(key[-8:], "big")
        if key == index_pages.state_key(ledger_id):
            data[offset + len(key) - 1] += 1
            hidden.append(ledger_id)
    path.write_bytes(data)
    return hidden[-1]

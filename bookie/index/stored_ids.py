"""Ids of the ledgers whose states are in the index's store. Pure.

Leaves the states to `bookie.index.stored_states`, and the check of look-ups to
`bookie.index.index`.

A scan of the store passes every leaf page. A look-up finds its way by the keys in branch pages, and
LMDB's pages have no checksums: a flipped bit there hides states that a scan finds. So "not stored"
needs proof, and these ids, which a verified scan collected at the start, are that proof.

Format: ascending ids of 8 bytes in arrays of at most `ARRAY_IDS_MAX`.
Source: protocol rule 2.4; storage design, "Index".
"""

import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Final

ARRAY_IDS_MAX: Final = 8_192


class StoredIds:
    """A sorted set of ledger ids in 8 bytes each."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._arrays: list[array[int]] = []
        """Non-empty, each below the next."""
        self._firsts: list[int] = []
        """First id of each array."""
        for ledger_id in ids:
            self.add(ledger_id)

    def __len__(self) -> int:
        return sum(map(len, self._arrays))

    def __contains__(self, ledger_id: int) -> bool:
        ids = self._array_of(ledger_id)
        if ids is None:
            return False
        place = bisect_left(ids, ledger_id)
        return place < len(ids) and ids[place] == ledger_id

    def append_keys(self, keys: list[bytes]) -> None:
        """Add ids above all others: each is the last 8 bytes, big-endian, of an ascending key."""
        if not keys:
            return
        ids = array("Q", b"".join([key[-8:] for key in keys]))
        if sys.byteorder == "little":
            ids.byteswap()
        assert not self._arrays or self._arrays[-1][-1] < ids[0]
        for start in range(0, len(ids), ARRAY_IDS_MAX):
            self._arrays.append(ids[start : start + ARRAY_IDS_MAX])
            self._firsts.append(ids[start])

    def add(self, ledger_id: int) -> None:
        """Add an id, if it is not there."""
        place = max(0, bisect_right(self._firsts, ledger_id) - 1)
        if not self._arrays:
            self._arrays.append(array("Q"))
            self._firsts.append(ledger_id)
        ids = self._arrays[place]
        if ledger_id in self:
            return
        insort(ids, ledger_id)
        if len(ids) > ARRAY_IDS_MAX:
            # The newest ids are the highest, so the lower array stays full when ids only rise.
            keep = len(ids) - 1 if ids[-1] == ledger_id else len(ids) // 2
            self._arrays[place : place + 1] = [ids[:keep], ids[keep:]]
            self._firsts.insert(place + 1, ids[keep])
        self._firsts[place] = self._arrays[place][0]

    def discard(self, ledger_id: int) -> None:
        """Remove an id, if it is there."""
        if ledger_id not in self:
            return
        place = bisect_right(self._firsts, ledger_id) - 1
        ids = self._arrays[place]
        ids.pop(bisect_left(ids, ledger_id))
        if ids:
            self._firsts[place] = ids[0]
        else:
            del self._arrays[place], self._firsts[place]

    def _array_of(self, ledger_id: int) -> "array[int] | None":
        place = bisect_right(self._firsts, ledger_id) - 1
        return self._arrays[place] if place >= 0 else None

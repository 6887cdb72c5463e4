"""The index's store of ledger states and of the horizon of their ids, many in one transaction.

Leaves the form of one state to `bookie.index.replica_state`, states in memory to
`bookie.storage.ledgers`, and the time and the amount of trimming to `bookie.storage.upkeep`.

Format: key `h`, value: ledger id i64, then the seal of `bookie.index.index_pages`; the states' keys
are there too.
Invariants: the count of the states and the XOR of their CRCs in the checkpoint's mark stay correct,
and cover the horizon, so that a lost one is noticed; one transaction removes tombstones and raises
the horizon.
Source: protocol rules 2.4, 10.2 and 10.3; storage design, "Index".
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bookie.errors import DiskFailedError
from bookie.files.disk import StoreTransaction
from bookie.index import index_pages, replica_state
from bookie.index.replica_state import ReplicaState
from metadata.ids import LEDGER_ID_MAX, LedgerId

PAGE_STATES: Final = 5_000
"""Number of states that one transaction reads."""
ARRAY_IDS_MAX: Final = 8_192
_HORIZON_KEY: Final = b"h"
_HORIZON = struct.Struct("<q")


class StoredIds:
    """Ids of the ledgers whose states are in the store: a sorted set with 8 bytes for each. Pure.

    A scan of the store passes every leaf page. A look-up finds its way by the keys in branch pages,
    and LMDB's pages have no checksums: a flipped bit there hides states that a scan finds. So "not
    stored" needs proof, and these ids, which a verified scan collected at the start, are that
    proof.

    Format: ascending ids of 8 bytes in arrays of at most `ARRAY_IDS_MAX`.
    """

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


@dataclass(slots=True)
class StatesCheck:
    """Progress and findings of a pass over the stored states."""

    last_id: int = -1
    """Last ledger id of the pass so far."""
    is_done: bool = False
    count: int = 0
    """Number of undamaged states, plus 1 for an undamaged horizon."""
    held_count: int = 0
    xor: int = 0
    """XOR of the CRCs of everything that `count` counts."""
    deleted_count: int = 0
    damaged: list[int] = field(default_factory=list)
    runs_left: list[int] = field(default_factory=list)
    """Deleted ledgers that have runs, at most `runs_left_max` of them."""
    has_more_runs_left: bool = False
    horizon: int = -1
    is_horizon_damaged: bool = False
    ids: StoredIds = field(default_factory=StoredIds)
    """Ledgers with undamaged states."""


def check_some(
    transaction: StoreTransaction, check: StatesCheck, runs_left_max: int
) -> StatesCheck:
    """Continue a pass by one page of states and verify their CRCs; the horizon comes first."""
    if check.last_id < 0:
        _check_horizon(transaction, check)
    is_damaged, is_deleted = replica_state.is_stored_damaged, replica_state.is_stored_deleted
    pairs = _scan(transaction, check.last_id, PAGE_STATES)
    check.is_done = len(pairs) < PAGE_STATES
    keys: list[bytes] = []
    for key, value in pairs:
        if is_damaged(key, value):
            check.damaged.append(_id_of(key))
            continue
        keys.append(key)
        check.count += 1
        check.xor ^= int.from_bytes(value[-4:], "little")
        if not is_deleted(value):
            check.held_count += 1
        else:
            check.deleted_count += 1
            if replica_state.has_stored_runs_left(value):
                if len(check.runs_left) < runs_left_max:
                    check.runs_left.append(_id_of(key))
                else:
                    check.has_more_runs_left = True
    check.ids.append_keys(keys)
    if pairs:
        check.last_id = _id_of(pairs[-1][0])
    return check


def _check_horizon(transaction: StoreTransaction, check: StatesCheck) -> None:
    horizon = read_horizon(transaction)
    check.is_horizon_damaged = horizon is None
    if horizon is not None and horizon[1]:
        check.horizon = horizon[0]
        check.count, check.xor = 1, index_pages.crc_of_state(horizon[1])


def find_tombstones(
    transaction: StoreTransaction, after: int, limit: int
) -> tuple[list[int], int | None]:
    """Return deleted ledgers without runs on one page of the ids above `after`, at most `limit`,
    and where to continue, None at the end.
    """
    tombstones: list[int] = []
    pairs = _scan(transaction, after, PAGE_STATES)
    for key, value in pairs:
        after = _id_of(key)
        if replica_state.is_stored_deleted(value) and not replica_state.has_stored_runs_left(value):
            tombstones.append(after)
            if len(tombstones) == limit:
                return tombstones, after
    return tombstones, after if len(pairs) == PAGE_STATES else None


def trim_tombstones(transaction: StoreTransaction, ledger_ids: Sequence[int]) -> int:
    """Remove tombstones and raise the horizon above them; return how many there were."""
    values = zip(ledger_ids, get_states(transaction, ledger_ids), strict=True)
    trimmed = [
        ledger_id
        for ledger_id, value in values
        if value is not None
        and replica_state.is_stored_deleted(value)
        and not replica_state.has_stored_runs_left(value)
    ]
    trim_states(transaction, trimmed)
    return len(trimmed)


def get_states(transaction: StoreTransaction, ledger_ids: Sequence[int]) -> list[bytes | None]:
    """Return the stored forms of some ledgers, None for each that has none."""
    return [transaction.get(index_pages.state_key(ledger_id)) for ledger_id in ledger_ids]


def list_held(
    transaction: StoreTransaction, after: int, limit: int
) -> tuple[list[int], int | None]:
    """Return ids of ledgers that are stored or fenced here, above `after`, ascending, and up to
    which id the list is complete, None when no more follow.
    """
    held: list[int] = []
    while len(held) < limit:
        pairs = _scan(transaction, after, PAGE_STATES)
        for key, value in pairs:
            after = _id_of(key)
            if not replica_state.is_stored_deleted(value):
                held.append(after)
                if len(held) == limit:
                    return held, after
        if len(pairs) < PAGE_STATES:
            return held, None
    return held, after


def list_runs_left(
    transaction: StoreTransaction, after: int, limit: int
) -> tuple[list[int], int | None]:
    """Return deleted ledgers that have runs on one page of the ids above `after`, at most `limit`,
    and where to continue, None at the end.
    """
    ledger_ids: list[int] = []
    pairs = _scan(transaction, after, PAGE_STATES)
    for key, value in pairs:
        after = _id_of(key)
        if replica_state.has_stored_runs_left(value):
            ledger_ids.append(after)
            if len(ledger_ids) == limit:
                return ledger_ids, after
    return ledger_ids, after if len(pairs) == PAGE_STATES else None


def put_in_limbo(transaction: StoreTransaction, after: int, *, fence: bool) -> int | None:
    """Put one page of the stored ledgers above `after` into limbo (rule 2.4), and with `fence`
    fence them. Return where to continue, None at the end.
    """
    pairs = _scan(transaction, after, PAGE_STATES)
    changed: list[tuple[int, bytes]] = []
    for key, value in pairs:
        after = _id_of(key)
        state = replica_state.decode(LedgerId(after), value)
        if isinstance(state, ReplicaState):
            replica_state.enter_limbo(state, fence=fence)
            changed.append((after, state.encode(state.highest)))
    index_pages.write_states(transaction, changed)
    return after if len(pairs) == PAGE_STATES else None


def _scan(transaction: StoreTransaction, after: int, limit: int) -> list[tuple[bytes, bytes]]:
    if after >= LEDGER_ID_MAX:
        return []
    start = index_pages.state_key(after + 1)
    pairs = transaction.scan(start, limit)
    if pairs and (pairs[-1][0][:1] != b"s" or any(len(key) != len(start) for key, _ in pairs)):
        return [pair for pair in pairs if pair[0][:1] == b"s" and len(pair[0]) == len(start)]
    return pairs


def _id_of(key: bytes) -> int:
    return int.from_bytes(key[1:], "big")


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
    pair = read_horizon(transaction)
    if pair is None:
        raise DiskFailedError("index", "the horizon of deleted ledgers is damaged")
    horizon, stored = pair
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

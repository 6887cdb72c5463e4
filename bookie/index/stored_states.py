"""Reads and rewrites of ledger states in the index, many in one transaction.

Leaves the form of one state to `bookie.index.replica_state`, and states in memory to
`bookie.storage.ledgers`.

Invariant: the count of the states and the XOR of their CRCs in the checkpoint's mark stay correct.
Source: protocol rules 2.4, 10.2; storage design, "Index".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bookie.files.index_store import StoreTransaction
from bookie.index import horizon_pages, index_pages, replica_state
from bookie.index.replica_state import ReplicaState
from bookie.index.stored_ids import StoredIds
from metadata.ids import LEDGER_ID_MAX, LedgerId

PAGE_STATES: Final = 5_000
"""Number of states that one transaction reads."""


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
    found = horizon_pages.read_horizon(transaction)
    check.is_horizon_damaged = found is None
    if found is not None and found[1]:
        check.horizon = found[0]
        check.count, check.xor = 1, index_pages.crc_of_state(found[1])


def find_tombstones(
    transaction: StoreTransaction, after: int, limit: int
) -> tuple[list[int], int | None]:
    """Return deleted ledgers without runs on one page of the ids above `after`, at most `limit`,
    and where to continue, None at the end.
    """
    found: list[int] = []
    pairs = _scan(transaction, after, PAGE_STATES)
    for key, value in pairs:
        after = _id_of(key)
        if replica_state.is_stored_deleted(value) and not replica_state.has_stored_runs_left(value):
            found.append(after)
            if len(found) == limit:
                return found, after
    return found, after if len(pairs) == PAGE_STATES else None


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
    horizon_pages.trim_states(transaction, trimmed)
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
    found: list[int] = []
    while len(found) < limit:
        pairs = _scan(transaction, after, PAGE_STATES)
        for key, value in pairs:
            after = _id_of(key)
            if not replica_state.is_stored_deleted(value):
                found.append(after)
                if len(found) == limit:
                    return found, after
        if len(pairs) < PAGE_STATES:
            return found, None
    return found, after


def list_runs_left(
    transaction: StoreTransaction, after: int, limit: int
) -> tuple[list[int], int | None]:
    """Return deleted ledgers that have runs on one page of the ids above `after`, at most `limit`,
    and where to continue, None at the end.
    """
    found: list[int] = []
    pairs = _scan(transaction, after, PAGE_STATES)
    for key, value in pairs:
        after = _id_of(key)
        if replica_state.has_stored_runs_left(value):
            found.append(after)
            if len(found) == limit:
                return found, after
    return found, after if len(pairs) == PAGE_STATES else None


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

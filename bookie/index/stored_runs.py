"""The runs of every ledger in the index's store, and what it keeps of segments: the live bytes of
each, what cleaning measured of it, and whether it holds damage.

Leaves runs in memory to `bookie.index.index`.

Format: see `bookie.index.index_pages`, keys `r`, `g`, `c` and `d`.

Invariants: a transaction that stores, moves or removes runs also changes their segments' bytes;
runs of a ledger never overlap; each run names the run before it, so that a lost run is noticed (a
negative needs proof).
Source: storage design, "Index"; reliability design, D5.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bookie.files.disk import StoreTransaction
from bookie.index.index_pages import NUMBER_KEY, SCAN_PAIRS, seal, unseal
from bookie.index.index_runs import Lookup, Run
from metadata.ids import LEDGER_ID_MAX, NO_ENTRY

LIVE_BYTES: Final = b"g"
DAMAGED: Final = b"d"
MEASURED: Final = b"c"
_RUN_KEY = struct.Struct(">cQQ")
_RUN = struct.Struct("<QqQI")
_MEASURED = struct.Struct("<II")
_VALUE_BYTES: Final = {LIVE_BYTES: 8, DAMAGED: 0, MEASURED: _MEASURED.size}


@dataclass(frozen=True, slots=True)
class RunMove:
    """Adjacent runs of a ledger that were rewritten as one. The new run ends where the last of them
    ends.
    """

    ledger_id: int
    old: tuple[Run, ...]
    new: Run


class StoredRun(NamedTuple):
    """One stored run, as found by a scan over all ledgers."""

    ledger_id: int
    last: int
    run: Run | None
    """None when the value is damaged."""
    previous: int
    """Last id of the run before it, from its value; NO_ENTRY when the value is damaged."""


def look_up(
    transaction: StoreTransaction, ledger_id: int, first: int, last: int, limit: int
) -> Lookup:
    """Return at most `limit` runs of first..last, up to where their chain proves that none is
    missing.
    """
    runs: list[Run] = []
    start = first
    pairs = transaction.scan(_RUN_KEY.pack(b"r", ledger_id, first), limit + 1)
    for key, value in pairs:
        if not _is_run_of(key, ledger_id):
            break
        run = _decode_run(key, value)
        if run is None:
            return Lookup(runs, start - 1, is_unproven=True)
        (run_last, run_first, location, size), previous_last = run
        if run_first > start and previous_last >= start:
            return Lookup(runs, start - 1, is_unproven=True)
        if run_first > last:
            return Lookup(runs, last, is_unproven=False)
        runs.append((min(run_last, last), max(run_first, first), location, size))
        start = run_last + 1
        if start > last:
            return Lookup(runs, last, is_unproven=False)
    is_unproven = len(pairs) <= limit or not _is_run_of(pairs[-1][0], ledger_id)
    return Lookup(runs, start - 1, is_unproven=is_unproven)


def put_runs(
    transaction: StoreTransaction, ledger_id: int, runs: Sequence[Run], highest: int
) -> dict[int, int]:
    """Store ascending runs of a ledger; they replace what they overlap. `highest` is the highest id
    that the ledger's stored runs should reach. Returns the change of the live bytes by segment: the
    caller passes it to `add_live_bytes` in the same transaction.
    """
    changes = bytes_by_segment(runs)
    beyond = transaction.seek(_RUN_KEY.pack(b"r", ledger_id, runs[0][1]))
    is_tail = beyond is None or not _is_run_of(beyond[0], ledger_id)
    previous: int | None = None
    for run in runs:
        if is_tail and previous is not None:
            previous = max(previous, min(highest, run[1] - 1))
        else:
            previous = _last_before(transaction, ledger_id, run[1], highest)
            _cut_back(transaction, ledger_id, run, changes)
        _put(transaction, ledger_id, run, previous)
        previous = run[0]
        if not is_tail:
            _link_successor(transaction, ledger_id, previous)
    return changes


def list_runs(
    transaction: StoreTransaction, ledger_id: int, first: int, last: int
) -> list[Run] | None:
    """Return the complete runs that overlap first..last; None when one of them is damaged or
    missing.
    """
    runs: list[Run] = []
    start, previous = first, None
    while True:
        pairs = transaction.scan(_RUN_KEY.pack(b"r", ledger_id, start), SCAN_PAIRS)
        for key, value in pairs:
            if not _is_run_of(key, ledger_id):
                return runs
            decoded = _decode_run(key, value)
            if decoded is None or previous not in (None, decoded[1]):
                return None
            if previous is None and decoded[0][1] > first and decoded[1] >= first:
                return None
            if decoded[0][1] > last:
                return runs
            runs.append(decoded[0])
            previous = decoded[0][0]
            start = previous + 1
        if len(pairs) < SCAN_PAIRS:
            return runs


def move_runs(transaction: StoreTransaction, moves: Sequence[RunMove]) -> dict[int, None]:
    """Replace old runs by the new run that joins them, if the index still has all of them
    unchanged. Return the segments of the runs that have changed: a checkpoint may have cut one, and
    the rest of it is still at its old place.
    """
    unmoved: dict[int, None] = {}
    changes: dict[int, int] = {}
    for move in moves:
        keys = [_RUN_KEY.pack(b"r", move.ledger_id, run[0]) for run in move.old]
        values = [transaction.get(key) for key in keys]
        decoded = [
            None if value is None else _decode_run(key, value)
            for key, value in zip(keys, values, strict=True)
        ]
        if any(pair is None or pair[0] != run for pair, run in zip(decoded, move.old, strict=True)):
            unmoved |= dict.fromkeys(run[2] >> 32 for run in move.old)
            continue
        assert decoded[0] is not None
        for key in keys[:-1]:
            transaction.delete(key)
        _put(transaction, move.ledger_id, move.new, decoded[0][1])
        _count(changes, move.new, 1)
        for run in move.old:
            _count(changes, run, -1)
    add_live_bytes(transaction, changes)
    return unmoved


def delete_runs(
    transaction: StoreTransaction, ledger_ids: Sequence[int], limit: int
) -> tuple[dict[int, int], int]:
    """Remove at most `limit` runs of some ledgers, one ledger after the other. Return the bytes
    freed by segment, and of how many ledgers no run is left.
    """
    runs: list[Run] = []
    deleted_count = done_count = 0
    for ledger_id in ledger_ids:
        prefix = NUMBER_KEY.pack(b"r", ledger_id)
        while (pair := _first(transaction, prefix)) is not None and deleted_count < limit:
            run = _decode_run(*pair)
            if run is not None:
                runs.append(run[0])
            transaction.delete(pair[0])
            deleted_count += 1
        if pair is not None:
            break
        done_count += 1
    freed = bytes_by_segment(runs)
    add_live_bytes(transaction, {number: -size for number, size in freed.items()})
    return freed, done_count


def _first(transaction: StoreTransaction, prefix: bytes) -> tuple[bytes, bytes] | None:
    pair = transaction.seek(prefix)
    return pair if pair is not None and pair[0].startswith(prefix) else None


def scan_runs(transaction: StoreTransaction, after: tuple[int, int], limit: int) -> list[StoredRun]:
    """Return the next stored runs of all ledgers after (ledger id, last id); (-1, -1) starts."""
    ledger_id, last = after
    start = b"r" + bytes(8) if ledger_id < 0 else _RUN_KEY.pack(b"r", *after) + b"\0"
    stored: list[StoredRun] = []
    for key, value in transaction.scan(start, limit):
        if not key.startswith(b"r"):
            break
        if len(key) == _RUN_KEY.size:
            _, ledger_id, last = _RUN_KEY.unpack(key)
            run, previous = _decode_run(key, value) or (None, NO_ENTRY)
            stored.append(StoredRun(ledger_id, last, run, previous))
    return stored


def highest_run(transaction: StoreTransaction, ledger_id: int) -> int:
    """Return the highest entry id in a ledger's stored runs, NO_ENTRY without one."""
    pair = transaction.before(_RUN_KEY.pack(b"r", ledger_id, 2**64 - 1))
    if pair is None or len(pair[0]) != _RUN_KEY.size:
        return NO_ENTRY
    prefix, found_ledger_id, last = _RUN_KEY.unpack(pair[0])
    is_of_ledger = prefix == b"r" and found_ledger_id == ledger_id
    return last if is_of_ledger else NO_ENTRY


def bytes_by_segment(runs: Iterable[Run]) -> dict[int, int]:
    """Return the total bytes of runs, by segment."""
    sizes: dict[int, int] = {}
    for run in runs:
        _count(sizes, run, 1)
    return sizes


def _count(sizes: dict[int, int], run: Run, sign: int) -> None:
    sizes[run[2] >> 32] = sizes.get(run[2] >> 32, 0) + sign * run[3]


def _decode_run(key: bytes, value: bytes) -> tuple[Run, int] | None:
    """Return a stored run and the last id of the run before it; None when it is damaged."""
    plain = unseal(key, value, _RUN.size)
    if plain is None:
        return None
    _, _, last = _RUN_KEY.unpack(key)
    first, previous_last, location, size = _RUN.unpack(plain)
    return (last, first, location, size), previous_last


def _put(transaction: StoreTransaction, ledger_id: int, run: Run, previous: int) -> None:
    key = _RUN_KEY.pack(b"r", ledger_id, run[0])
    transaction.put(key, seal(key, _RUN.pack(run[1], previous, run[2], run[3])))


def _last_before(transaction: StoreTransaction, ledger_id: int, first: int, highest: int) -> int:
    """Return the last stored id before an entry. The run after the entry names it, or `highest`
    does where there is no such run, so a run that was lost is still named.
    """
    pair = transaction.seek(_RUN_KEY.pack(b"r", ledger_id, first))
    named = highest
    if pair is not None and _is_run_of(pair[0], ledger_id):
        decoded = _decode_run(*pair)
        if decoded is not None and decoded[0][1] < first:
            return first - 1
        named = first - 1 if decoded is None else decoded[1]
    before = transaction.before(_RUN_KEY.pack(b"r", ledger_id, first))
    last = NO_ENTRY if before is None else _last_of(before[0], ledger_id)
    return max(last, min(named, first - 1))


def _cut_back(
    transaction: StoreTransaction, ledger_id: int, run: Run, changes: dict[int, int]
) -> None:
    """Cut the stored runs that overlap a run about to be stored, and count it in `changes`."""
    start = run[1]
    while (pair := transaction.seek(_RUN_KEY.pack(b"r", ledger_id, start))) is not None:
        key, value = pair
        if not _is_run_of(key, ledger_id):
            return
        decoded = _decode_run(key, value)
        if decoded is None:
            transaction.delete(key)  # damaged: rebuilding finds its entries in the segments
            continue
        (last, first, location, size), previous = decoded
        if first > run[0]:
            return
        transaction.delete(key)
        _count(changes, decoded[0], -1)
        if first < run[1]:
            _put(transaction, ledger_id, (run[1] - 1, first, location, size), previous)
            _count(changes, decoded[0], 1)
        if last > run[0]:
            _put(transaction, ledger_id, (last, run[0] + 1, location, size), run[0])
            _count(changes, decoded[0], 1)
            return
        start = last + 1


def _link_successor(transaction: StoreTransaction, ledger_id: int, previous: int) -> None:
    """Make the run after `previous` name it as its predecessor."""
    pair = transaction.seek(_RUN_KEY.pack(b"r", ledger_id, previous + 1))
    if pair is not None and _is_run_of(pair[0], ledger_id):
        decoded = _decode_run(*pair)
        # A run that names a higher id names a lost run: that proves that entries were there.
        if decoded is not None and decoded[1] < previous:
            _put(transaction, ledger_id, decoded[0], previous)


def _is_run_of(key: bytes, ledger_id: int) -> bool:
    return len(key) == _RUN_KEY.size and key.startswith(NUMBER_KEY.pack(b"r", ledger_id))


def _last_of(key: bytes, ledger_id: int) -> int:
    return int.from_bytes(key[-8:], "big") if _is_run_of(key, ledger_id) else NO_ENTRY


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
    for number, measure in measured.items():
        key = NUMBER_KEY.pack(MEASURED, number)
        transaction.put(key, seal(key, _MEASURED.pack(*measure)))


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
    while segments := scan_segments(transaction, after, LIVE_BYTES):
        live |= {number: count or 0 for number, count in segments}
        after = segments[-1][0]
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

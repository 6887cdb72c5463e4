"""Keys and values of the index's store, and the work of its transactions.

Leaves transactions themselves to `bookie.files.index_store`, and runs in memory to
`bookie.index.index`.

Format, keys and values; numbers in keys are big-endian, in values little-endian; each value ends in
the CRC32C of key and value:

| key | value |
|---|---|
| `m` | version u16, flags u16 (see `FLAG_`), mark u64, states u64, XOR of CRCs u32 |
| `r`, ledger id u64, last id u64 | first id u64, last id of run before i64, LSN u64, bytes u32 |
| `s`, ledger id u64 | see `bookie.index.replica_state` |
| `h` | see `bookie.index.horizon_pages` |
| `g`, segment number u64 | bytes of the stored runs in the segment u64 |
| `d`, segment number u64 | nothing: the segment holds damage |

Invariants: a transaction that stores, moves or removes runs also changes their segments' bytes;
runs of a ledger never overlap; each run names the run before it, so that a lost run is noticed (a
negative needs proof).
Source: storage design, "Index"; reliability design, D5.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from bookie.errors import DiskFailedError
from bookie.files.index_store import Transaction
from bookie.index.index_runs import Lookup, Run
from metadata.ids import LEDGER_ID_MAX, NO_ENTRY

INDEX_VERSION: Final = 2
"""Releases that write 1 treat unsynced bytes as durable at a start, so they must not open a newer
directory. Directories with version 1 are read unchanged.
"""
FLAG_LIMBO: Final = 1
FLAG_FENCES_LOST: Final = 2
FLAG_UNFINISHED: Final = 4
"""A start checkpointed past a loss and has not put all ledgers into limbo yet."""
SCAN_PAIRS: Final = 512

_META_KEY: Final = b"m"
_META = struct.Struct("<HHQQI")
RUN_KEY = struct.Struct(">cQQ")
_RUN = struct.Struct("<QqQI")
_NUMBER_KEY = struct.Struct(">cQ")
_LIVE = struct.Struct("<Q")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Meta:
    """Value that the last transaction of a checkpoint writes."""

    version: int
    flags: int
    mark_lsn: int
    state_count: int
    state_xor: int


@dataclass(frozen=True, slots=True)
class RunMove:
    """Adjacent runs of a ledger that were rewritten as one. The new run ends where the last of them
    ends.
    """

    ledger_id: int
    old: tuple[Run, ...]
    new: Run


def seal(key: bytes, value: bytes) -> bytes:
    """Return a value with its CRC."""
    return value + _CRC.pack(crc32c(value, crc32c(key)))


def unseal(key: bytes, value: bytes, size: int) -> bytes | None:
    """Return a value without its CRC, None when it is damaged or not of this size."""
    if len(value) != size + _CRC.size:
        return None
    return value[:size] if seal(key, value[:size]) == value else None


def read_meta(transaction: Transaction) -> Meta | None:
    """Return the checkpoint's mark with its counts; None when it is missing or damaged."""
    value = transaction.get(_META_KEY)
    plain = None if value is None else unseal(_META_KEY, value, _META.size)
    return None if plain is None else Meta(*_META.unpack(plain))


def require_meta(transaction: Transaction) -> Meta:
    """Return the checkpoint's mark with its counts. Raises DiskFailedError when it is missing."""
    meta = read_meta(transaction)
    if meta is None:
        raise DiskFailedError(
            "index",
            "the checkpoint's mark is lost. If this repeats, run: quire bookie rebuild-index DIR",
        )
    return meta


def is_empty(transaction: Transaction) -> bool:
    """Return whether nothing was ever stored."""
    return transaction.seek(b"\0") is None


def write_meta(transaction: Transaction, meta: Meta) -> None:
    """Store the checkpoint's mark with its counts."""
    packed = _META.pack(meta.version, meta.flags, meta.mark_lsn, meta.state_count, meta.state_xor)
    transaction.put(_META_KEY, seal(_META_KEY, packed))


def state_key(ledger_id: int) -> bytes:
    """Return the key of a ledger's state."""
    return _NUMBER_KEY.pack(b"s", ledger_id)


def write_states(transaction: Transaction, values: Iterable[tuple[int, bytes]]) -> None:
    """Store sealed states, and update the count and the XOR of their CRCs."""
    meta = require_meta(transaction)
    count, xor = meta.state_count, meta.state_xor
    for ledger_id, value in values:
        key = state_key(ledger_id)
        old = transaction.get(key)
        if old is None:
            count += 1
        else:
            xor ^= crc_of_state(old)
        xor ^= crc_of_state(value)
        transaction.put(key, value)
    write_meta(transaction, replace(meta, state_count=count, state_xor=xor))


def scan_states(transaction: Transaction, after: int) -> list[tuple[int, bytes]]:
    """Return the next stored states (ledger id, sealed value) after a ledger id; -1 starts."""
    return [(number, value) for number, value in _scan_numbers(transaction, b"s", after)]


def scan_live_bytes(transaction: Transaction, after: int) -> list[tuple[int, int]]:
    """Return the next segments' live bytes; 0 for a damaged value, because they are only a hint."""
    found = []
    for number, value in _scan_numbers(transaction, b"g", after):
        plain = unseal(_NUMBER_KEY.pack(b"g", number), value, _LIVE.size)
        found.append((number, 0 if plain is None else _LIVE.unpack(plain)[0]))
    return found


def add_live_bytes(transaction: Transaction, changes: dict[int, int]) -> None:
    """Add to segments' live bytes; a damaged value counts as 0."""
    for number, change in changes.items():
        if change:
            key = _NUMBER_KEY.pack(b"g", number)
            value = transaction.get(key)
            plain = None if value is None else unseal(key, value, _LIVE.size)
            count = 0 if plain is None else _LIVE.unpack(plain)[0]
            transaction.put(key, seal(key, _LIVE.pack(max(0, count + change))))


def remove_live_bytes(transaction: Transaction, removed: Iterable[int]) -> dict[int, int]:
    """Remove the live bytes of removed segments; return the live bytes of all others."""
    for number in removed:
        transaction.delete(_NUMBER_KEY.pack(b"g", number))
    live: dict[int, int] = {}
    after = -1
    while found := scan_live_bytes(transaction, after):
        live |= found
        after = found[-1][0]
    return live


def crc_of_state(value: bytes) -> int:
    """Return the CRC at the end of a sealed value."""
    (crc,) = _CRC.unpack_from(value, len(value) - _CRC.size)
    return int(crc)


def look_up(transaction: Transaction, ledger_id: int, first: int, last: int, limit: int) -> Lookup:
    """Return at most `limit` runs of first..last, up to where their chain proves that none is
    missing.
    """
    runs: list[Run] = []
    start = first
    pairs = transaction.scan(RUN_KEY.pack(b"r", ledger_id, first), limit + 1)
    for key, value in pairs:
        if not _is_run_of(key, ledger_id):
            break
        run = decode_run(key, value)
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
    transaction: Transaction, ledger_id: int, runs: Sequence[Run], highest: int
) -> dict[int, int]:
    """Store ascending runs of a ledger; they replace what they overlap. `highest` is the highest id
    that the ledger's stored runs should reach. Returns the change of the live bytes by segment: the
    caller passes it to `add_live_bytes` in the same transaction.
    """
    changes = bytes_by_segment(runs)
    beyond = transaction.seek(RUN_KEY.pack(b"r", ledger_id, runs[0][1]))
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


def list_runs(transaction: Transaction, ledger_id: int, first: int, last: int) -> list[Run] | None:
    """Return the complete runs that overlap first..last; None when one of them is damaged or
    missing.
    """
    runs: list[Run] = []
    start, previous = first, None
    while True:
        pairs = transaction.scan(RUN_KEY.pack(b"r", ledger_id, start), SCAN_PAIRS)
        for key, value in pairs:
            if not _is_run_of(key, ledger_id):
                return runs
            found = decode_run(key, value)
            if found is None or previous not in (None, found[1]):
                return None
            if previous is None and found[0][1] > first and found[1] >= first:
                return None
            if found[0][1] > last:
                return runs
            runs.append(found[0])
            previous = found[0][0]
            start = previous + 1
        if len(pairs) < SCAN_PAIRS:
            return runs


def move_runs(transaction: Transaction, moves: Sequence[RunMove]) -> dict[int, None]:
    """Replace old runs by the new run that joins them, if the index still has all of them
    unchanged. Return the segments of the runs that have changed: a checkpoint may have cut one, and
    the rest of it is still at its old place.
    """
    unmoved: dict[int, None] = {}
    changes: dict[int, int] = {}
    for move in moves:
        keys = [RUN_KEY.pack(b"r", move.ledger_id, run[0]) for run in move.old]
        values = [transaction.get(key) for key in keys]
        found = [
            None if value is None else decode_run(key, value)
            for key, value in zip(keys, values, strict=True)
        ]
        if any(pair is None or pair[0] != run for pair, run in zip(found, move.old, strict=True)):
            unmoved |= dict.fromkeys(run[2] >> 32 for run in move.old)
            continue
        assert found[0] is not None
        for key in keys[:-1]:
            transaction.delete(key)
        _put(transaction, move.ledger_id, move.new, found[0][1])
        _count(changes, move.new, 1)
        for run in move.old:
            _count(changes, run, -1)
    add_live_bytes(transaction, changes)
    return unmoved


def delete_runs(
    transaction: Transaction, ledger_id: int, limit: int
) -> tuple[dict[int, int], bool]:
    """Remove at most `limit` runs of a ledger. Return the bytes freed by segment, and whether no
    run is left.
    """
    pairs = transaction.scan(RUN_KEY.pack(b"r", ledger_id, 0), limit + 1)
    mine = [(key, value) for key, value in pairs if _is_run_of(key, ledger_id)]
    runs: list[Run] = []
    for key, value in mine[:limit]:
        run = decode_run(key, value)
        if run is not None:
            runs.append(run[0])
        transaction.delete(key)
    freed = bytes_by_segment(runs)
    add_live_bytes(transaction, {number: -size for number, size in freed.items()})
    return freed, len(mine) <= limit


def bytes_by_segment(runs: Iterable[Run]) -> dict[int, int]:
    """Return the total bytes of runs, by segment."""
    found: dict[int, int] = {}
    for run in runs:
        _count(found, run, 1)
    return found


def _count(found: dict[int, int], run: Run, sign: int) -> None:
    found[run[2] >> 32] = found.get(run[2] >> 32, 0) + sign * run[3]


def decode_run(key: bytes, value: bytes) -> tuple[Run, int] | None:
    """Return a stored run and the last id of the run before it; None when it is damaged."""
    plain = unseal(key, value, _RUN.size)
    if plain is None:
        return None
    _, _, last = RUN_KEY.unpack(key)
    first, previous_last, location, size = _RUN.unpack(plain)
    return (last, first, location, size), previous_last


def _put(transaction: Transaction, ledger_id: int, run: Run, previous: int) -> None:
    key = RUN_KEY.pack(b"r", ledger_id, run[0])
    transaction.put(key, seal(key, _RUN.pack(run[1], previous, run[2], run[3])))


def _last_before(transaction: Transaction, ledger_id: int, first: int, highest: int) -> int:
    """Return the last stored id before an entry. The run behind the entry names it, or `highest`
    does where there is no such run, so a run that was lost is still named.
    """
    pair = transaction.seek(RUN_KEY.pack(b"r", ledger_id, first))
    named = highest
    if pair is not None and _is_run_of(pair[0], ledger_id):
        found = decode_run(*pair)
        if found is not None and found[0][1] < first:
            return first - 1
        named = first - 1 if found is None else found[1]
    before = transaction.before(RUN_KEY.pack(b"r", ledger_id, first))
    last = NO_ENTRY if before is None else _last_of(before[0], ledger_id)
    return max(last, min(named, first - 1))


def _cut_back(transaction: Transaction, ledger_id: int, run: Run, changes: dict[int, int]) -> None:
    """Cut the stored runs that overlap a run about to be stored, and count it in `changes`."""
    start = run[1]
    while (pair := transaction.seek(RUN_KEY.pack(b"r", ledger_id, start))) is not None:
        key, value = pair
        if not _is_run_of(key, ledger_id):
            return
        found = decode_run(key, value)
        if found is None:
            transaction.delete(key)  # damaged: rebuilding finds its entries in the segments
            continue
        (last, first, location, size), previous = found
        if first > run[0]:
            return
        transaction.delete(key)
        _count(changes, found[0], -1)
        if first < run[1]:
            _put(transaction, ledger_id, (run[1] - 1, first, location, size), previous)
            _count(changes, found[0], 1)
        if last > run[0]:
            _put(transaction, ledger_id, (last, run[0] + 1, location, size), run[0])
            _count(changes, found[0], 1)
            return
        start = last + 1


def _link_successor(transaction: Transaction, ledger_id: int, previous: int) -> None:
    """Make the run behind `previous` name it as its predecessor."""
    pair = transaction.seek(RUN_KEY.pack(b"r", ledger_id, previous + 1))
    if pair is not None and _is_run_of(pair[0], ledger_id):
        found = decode_run(*pair)
        # A run that names a higher id names a lost run: that proves that entries were there.
        if found is not None and found[1] < previous:
            _put(transaction, ledger_id, found[0], previous)


def _is_run_of(key: bytes, ledger_id: int) -> bool:
    return len(key) == RUN_KEY.size and key.startswith(_NUMBER_KEY.pack(b"r", ledger_id))


def _last_of(key: bytes, ledger_id: int) -> int:
    return int.from_bytes(key[-8:], "big") if _is_run_of(key, ledger_id) else NO_ENTRY


def _scan_numbers(transaction: Transaction, prefix: bytes, after: int) -> list[tuple[int, bytes]]:
    if after >= LEDGER_ID_MAX:
        return []
    pairs = transaction.scan(_NUMBER_KEY.pack(prefix, after + 1), SCAN_PAIRS)
    return [
        (int.from_bytes(key[1:], "big"), value)
        for key, value in pairs
        if key.startswith(prefix) and len(key) == _NUMBER_KEY.size
    ]

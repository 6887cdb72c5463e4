"""Sealed values of the index's store, the checkpoint's mark, and stored ledger states.

Leaves transactions to `bookie.files.disk`, runs to `bookie.index.stored_runs`, and segments
to `bookie.index.stored_runs`.

Format, keys and values; numbers in keys are big-endian, in values little-endian; each value ends in
the CRC32C of key and value:

| key | value |
|---|---|
| `m` | version u16, flags u16 (see `FLAG_`), mark u64, states u64, XOR of CRCs u32 |
| `r`, ledger id u64, last id u64 | first id u64, last id of run before i64, LSN u64, bytes u32 |
| `s`, ledger id u64 | see `bookie.index.replica_state` |
| `h` | see `bookie.index.stored_states` |
| `g`, segment number u64 | bytes of the stored runs in the segment u64 |
| `c`, segment number u64 | adds records in it u32, mean bytes of its runs u32 |
| `d`, segment number u64 | nothing: the segment holds damage |

Source: storage design, "Index".
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from bookie.errors import DiskFailedError
from bookie.files.disk import StoreTransaction

INDEX_VERSION: Final = 1
FLAG_LIMBO: Final = 1
FLAG_FENCES_LOST: Final = 2
FLAG_UNFINISHED: Final = 4
"""A start checkpointed past a loss and has not put all ledgers into limbo yet."""
SCAN_PAIRS: Final = 512

STATES_PREFIX: Final = b"s"
"""All other keys are below the states' keys."""
_META_KEY: Final = b"m"
_META = struct.Struct("<HHQQI")
NUMBER_KEY = struct.Struct(">cQ")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class CheckpointMeta:
    """Value that the last transaction of a checkpoint writes."""

    version: int
    flags: int
    mark_lsn: int
    state_count: int
    state_xor: int


def seal(key: bytes, value: bytes) -> bytes:
    """Return a value with its CRC."""
    return value + _CRC.pack(crc32c(value, crc32c(key)))


def unseal(key: bytes, value: bytes, size: int) -> bytes | None:
    """Return a value without its CRC, None when it is damaged or not of this size."""
    if len(value) != size + _CRC.size:
        return None
    return value[:size] if seal(key, value[:size]) == value else None


def read_meta(transaction: StoreTransaction) -> CheckpointMeta | None:
    """Return the checkpoint's mark with its counts; None when it is missing or damaged."""
    value = transaction.get(_META_KEY)
    plain = None if value is None else unseal(_META_KEY, value, _META.size)
    return None if plain is None else CheckpointMeta(*_META.unpack(plain))


def require_meta(transaction: StoreTransaction) -> CheckpointMeta:
    """Return the checkpoint's mark with its counts. Raises DiskFailedError when it is missing."""
    meta = read_meta(transaction)
    if meta is None:
        raise DiskFailedError(
            "index",
            "the checkpoint's mark is lost. If this repeats, run: quire bookie rebuild-index DIR",
        )
    return meta


def is_empty(transaction: StoreTransaction) -> bool:
    """Return whether nothing was ever stored."""
    return transaction.seek(b"\0") is None


def write_meta(transaction: StoreTransaction, meta: CheckpointMeta) -> None:
    """Store the checkpoint's mark with its counts."""
    packed = _META.pack(meta.version, meta.flags, meta.mark_lsn, meta.state_count, meta.state_xor)
    transaction.put(_META_KEY, seal(_META_KEY, packed))


def state_key(ledger_id: int) -> bytes:
    """Return the key of a ledger's state."""
    return NUMBER_KEY.pack(STATES_PREFIX, ledger_id)


def write_states(transaction: StoreTransaction, values: Iterable[tuple[int, bytes]]) -> None:
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


def crc_of_state(value: bytes) -> int:
    """Return the CRC at the end of a sealed value."""
    (crc,) = _CRC.unpack_from(value, len(value) - _CRC.size)
    return int(crc)

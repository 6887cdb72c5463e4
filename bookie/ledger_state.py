"""Decides what a bookie does with an add, a fence or a read of one ledger; holds what it knows of
that ledger.

Leaves the log and the index to `bookie.storage`, which performs what is decided.

Format of a stored state, little-endian: flags u8 (1 fenced, 2 limbo, 4 deleted, 8 deleted but runs
are left, 16 has a master key), LAC i64, highest entry id i64, length u64, master key 32 bytes; then
the seal of `bookie.index_pages`.
Invariants: a fence is never taken back; the LAC never goes back; no negative is sure in limbo (rule
2.4).
Source: protocol rules 2.4, 4.3, 7.2, 10.2.
"""

import hmac
import struct
from typing import Final

from bookie import index_pages
from bookie.wire.batch import BatchHeader
from bookie.wire.messages import MASTER_KEY_BYTES, Status
from metadata.ids import NO_ENTRY, EntryId, LedgerId

_STATE = struct.Struct(f"<Bqqq{MASTER_KEY_BYTES}s")
_FENCED: Final = 1
_LIMBO: Final = 2
_DELETED: Final = 4
_HAS_RUNS: Final = 8
_HAS_KEY: Final = 16


class LedgerState:
    """What a bookie knows of one ledger, all in memory."""

    __slots__ = (
        "accepted_highest",
        "fenced",
        "highest",
        "indexed_highest",
        "is_dirty",
        "is_fence_durable",
        "lac",
        "ledger_id",
        "length",
        "limbo",
        "master_key",
        "queued_count",
    )

    def __init__(self, ledger_id: LedgerId) -> None:
        self.ledger_id = ledger_id
        self.fenced = False
        self.is_fence_durable = False
        self.limbo = False
        self.master_key: bytes | None = None
        self.lac: int = NO_ENTRY
        """The largest LAC seen: true whoever stores it, so it may be told before it is durable."""
        self.highest: int = NO_ENTRY
        """The highest durable entry id."""
        self.accepted_highest: int = NO_ENTRY
        """The highest id accepted, durable or queued; an add beyond it overlaps nothing."""
        self.indexed_highest: int = NO_ENTRY
        """The highest id in the index's store: beyond it, what is not in memory is not held."""
        self.length = 0
        """The ledger's bytes up to the highest entry, from whole batches."""
        self.queued_count = 0
        """Adds accepted and not yet answered."""
        self.is_dirty = False

    def encode(self, highest: int) -> bytes:
        """Return the stored form, with the highest id that the index's store will hold."""
        flags = (
            _FENCED * self.fenced | _LIMBO * self.limbo | _HAS_KEY * (self.master_key is not None)
        )
        return _seal(self.ledger_id, flags, self.lac, highest, self.length, self.master_key)


def encode_deleted(ledger_id: LedgerId, *, has_runs: bool) -> bytes:
    """Return the stored form of a deleted ledger."""
    flags = _DELETED | _HAS_RUNS * has_runs
    return _seal(ledger_id, flags, NO_ENTRY, NO_ENTRY, 0, None)


def decode(ledger_id: LedgerId, value: bytes) -> LedgerState | bool | None:
    """Read a stored form: a state; for a deleted ledger whether runs are left; None when it is
    damaged.
    """
    plain = index_pages.unseal(index_pages.state_key(ledger_id), value, _STATE.size)
    if plain is None:
        return None
    flags, lac, highest, length, master_key = _STATE.unpack(plain)
    if flags & _DELETED:
        return bool(flags & _HAS_RUNS)
    state = LedgerState(ledger_id)
    state.fenced = state.is_fence_durable = bool(flags & _FENCED)
    state.limbo = bool(flags & _LIMBO)
    state.master_key = master_key if flags & _HAS_KEY else None
    state.lac = lac
    state.highest = state.accepted_highest = state.indexed_highest = highest
    state.length = length
    return state


def _seal(
    ledger_id: int, flags: int, lac: int, highest: int, length: int, master_key: bytes | None
) -> bytes:
    packed = _STATE.pack(flags, lac, highest, length, master_key or bytes(MASTER_KEY_BYTES))
    return index_pages.seal(index_pages.state_key(ledger_id), packed)


def is_authorized(state: LedgerState, master_key: bytes | None) -> bool:
    """Tell whether a key opens the ledger; None is administration, and a ledger without a key takes
    any.
    """
    stored = state.master_key
    if master_key is None or stored is None or stored is master_key:
        return True
    return hmac.compare_digest(stored, master_key)


def note_accepted(state: LedgerState, header: BatchHeader) -> bool:
    """Take note of an accepted batch; return whether the LAC advanced. A slice's LAC is not the
    writer's.
    """
    last = header.first_entry_id + header.count - 1
    state.accepted_highest = max(state.accepted_highest, last)
    state.queued_count += 1
    return header.lac > state.lac and not header.is_slice and note_lac(state, header.lac)


def note_stored(state: LedgerState, header: BatchHeader) -> None:
    """Take note of a batch that is durable and indexed."""
    last = header.first_entry_id + header.count - 1
    if last > state.highest:
        state.highest = last
        if not header.is_slice:
            state.length = header.length_before + header.payload_bytes
    state.accepted_highest = max(state.accepted_highest, state.highest)
    state.is_dirty = True


def note_unqueued(state: LedgerState) -> None:
    """Take note of an answered add, stored or not; what was refused is forgotten once nothing is
    queued.
    """
    state.queued_count -= 1
    if not state.queued_count:
        state.accepted_highest = state.highest


def note_lac(state: LedgerState, lac: int) -> bool:
    """Take note of a LAC; return whether it advanced."""
    if lac <= state.lac:
        return False
    state.lac = lac
    state.is_dirty = True
    return True


def negative(state: LedgerState | None, *, is_limbo: bool) -> Status:
    """Return the answer for an entry that is not held (rule 2.4)."""
    if is_limbo or (state is not None and state.limbo):
        return Status.UNKNOWN
    return Status.NO_SUCH_LEDGER if state is None else Status.NO_SUCH_ENTRY


def advertised_lac(state: LedgerState | None) -> EntryId:
    """Return the LAC to report."""
    return NO_ENTRY if state is None else EntryId(state.lac)

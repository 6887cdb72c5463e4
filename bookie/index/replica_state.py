"""State of one ledger on a bookie, its changes, and its stored form.

Leaves refusals to `bookie.storage.admission`, overlapping adds to `bookie.storage.overlapping`, and
the log and the index to `bookie.storage.bookie_storage`.

Format of a stored state, little-endian: flags u8 (1 fenced, 2 limbo, 4 deleted, 8 deleted and runs
are left, 16 has a master key, 32 released), LAC i64, highest entry id i64, length u64, master key
32 bytes; then the seal of `bookie.index.index_pages`.
Invariants: a fence is never removed; the LAC never decreases; in limbo no negative is certain (rule
2.4).
Source: protocol rules 2.4, 4.3, 7.2, 10.2.
"""

import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from bookie.index import index_pages
from bookie.wire.batch import FLAG_SLICE, BatchHeader
from bookie.wire.messages import MASTER_KEY_BYTES, Status
from metadata.ids import NO_ENTRY, EntryId, LedgerId

_STATE = struct.Struct(f"<Bqqq{MASTER_KEY_BYTES}s")
_CRC = struct.Struct("<I")
_FENCED: Final = 1
_LIMBO: Final = 2
_DELETED: Final = 4
_HAS_RUNS: Final = 8
_HAS_KEY: Final = 16
_RELEASED: Final = 32


@dataclass(slots=True, eq=False)
class UnsavedLedgers:
    """Ledgers whose stored form is out of date since the last checkpoint began."""

    generation: int = 0
    """Number of checkpoints begun."""
    ledger_ids: dict[int, None] = field(default_factory=dict)

    def take(self) -> dict[int, None]:
        """Return the ledgers and empty the list: the caller stores them now."""
        taken, self.ledger_ids = self.ledger_ids, {}
        self.generation += 1
        return taken


@dataclass(slots=True, eq=False, repr=False)
class ReplicaState:
    """State of one ledger that is in memory."""

    ledger_id: LedgerId
    unsaved: UnsavedLedgers = field(default_factory=UnsavedLedgers)
    changed_in: int = -1
    """Generation of the last change."""
    use_count: int = 0
    """Number of requests that keep this object while they wait: it must stay in memory for them."""
    was_used: bool = True
    """Whether the state was used since eviction last checked it."""
    is_deleted: bool = False
    """Whether the ledger was deleted while requests kept this object."""
    fenced: bool = False
    is_fence_durable: bool = False
    limbo: bool = False
    released: bool = False
    """Whether this bookie dropped the ledger's entries because the ledger moved away."""
    master_key: bytes | None = None
    lac: int = NO_ENTRY
    """Largest LAC seen. It is true independent of this bookie, so it may be reported before it is
    durable.
    """
    highest: int = NO_ENTRY
    """Highest durable entry id."""
    accepted_highest: int = NO_ENTRY
    """Highest accepted entry id, durable or queued. An add beyond it overlaps nothing."""
    indexed_highest: int = NO_ENTRY
    """Highest entry id in the index's store. An entry beyond it is in memory or not stored."""
    length: int = 0
    """Bytes of the ledger up to the highest entry, from complete batches."""
    queued_count: int = 0
    """Number of adds accepted and not yet answered."""
    release_count: int = 0
    """Number of releases since the state was loaded: what was read before one may be gone."""

    @property
    def is_dirty(self) -> bool:
        """Return whether the stored form is out of date."""
        return self.changed_in == self.unsaved.generation

    def touch(self) -> None:
        """Note that the stored form is out of date."""
        unsaved = self.unsaved
        if self.changed_in != unsaved.generation:
            self.changed_in = unsaved.generation
            self.was_used = True
            unsaved.ledger_ids[self.ledger_id] = None

    def encode(self, highest: int) -> bytes:
        """Return the stored form, with the highest id that the index's store will hold."""
        flags = (
            _FENCED * self.fenced
            | _LIMBO * self.limbo
            | _HAS_KEY * (self.master_key is not None)
            | _RELEASED * self.released
        )
        return _seal(self.ledger_id, flags, self.lac, highest, self.length, self.master_key)


def is_stored_damaged(key: bytes, value: bytes) -> bool:
    """Return whether a stored form does not match its CRC, without decoding it."""
    return value[_STATE.size :] != _CRC.pack(crc32c(value[: _STATE.size], crc32c(key)))


def is_stored_deleted(value: bytes) -> bool:
    """Return whether an undamaged stored form is of a deleted ledger."""
    return bool(value[0] & _DELETED)


def is_stored_released(value: bytes) -> bool:
    """Return whether an undamaged stored form is of a released ledger."""
    return bool(value[0] & _RELEASED)


def has_stored_runs_left(value: bytes) -> bool:
    """Return whether an undamaged stored form is of a deleted ledger that still has runs."""
    return bool(value[0] & _HAS_RUNS)


def encode_deleted(ledger_id: LedgerId, *, has_runs: bool) -> bytes:
    """Return the stored form of a deleted ledger."""
    flags = _DELETED | _HAS_RUNS * has_runs
    return _seal(ledger_id, flags, NO_ENTRY, NO_ENTRY, 0, None)


def decode(
    ledger_id: LedgerId, value: bytes, unsaved: UnsavedLedgers | None = None
) -> ReplicaState | bool | None:
    """Decode a stored form. Return the state; for a deleted ledger, whether runs are left; None
    when the form is damaged. The state reports its changes to `unsaved`.
    """
    plain = index_pages.unseal(index_pages.state_key(ledger_id), value, _STATE.size)
    if plain is None:
        return None
    flags, lac, highest, length, master_key = _STATE.unpack(plain)
    if flags & _DELETED:
        return bool(flags & _HAS_RUNS)
    state = ReplicaState(ledger_id, UnsavedLedgers() if unsaved is None else unsaved)
    state.fenced = state.is_fence_durable = bool(flags & _FENCED)
    state.limbo = bool(flags & _LIMBO)
    state.released = bool(flags & _RELEASED)
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


def is_authorized(state: ReplicaState, master_key: bytes | None) -> bool:
    """Return whether a key opens the ledger. The key None is for administration and opens every
    ledger; a ledger without a key accepts any key.
    """
    stored = state.master_key
    if master_key is None or stored is None or stored is master_key:
        return True
    return hmac.compare_digest(stored, master_key)


def note_accepted(state: ReplicaState, header: BatchHeader) -> bool:
    """Record an accepted batch; return whether the LAC advanced. The LAC of a slice is ignored,
    because it is not the writer's.
    """
    last = header.first_entry_id + header.count - 1
    state.accepted_highest = max(state.accepted_highest, last)
    state.queued_count += 1
    return not header.flags & FLAG_SLICE and note_lac(state, header.lac)


def note_stored(state: ReplicaState, header: BatchHeader) -> None:
    """Record a batch that is durable and indexed."""
    last = header.first_entry_id + header.count - 1
    if last > state.highest:
        state.highest = last
        if not header.flags & FLAG_SLICE:
            state.length = header.length_before + header.payload_bytes
    state.accepted_highest = max(state.accepted_highest, state.highest)
    state.touch()


def note_unqueued(state: ReplicaState) -> None:
    """Record an answered add, stored or not. Once nothing is queued, `accepted_highest` no longer
    includes refused adds.
    """
    state.queued_count -= 1
    if not state.queued_count:
        state.accepted_highest = state.highest


def note_lac(state: ReplicaState, lac: int) -> bool:
    """Record a LAC; return whether it advanced."""
    if lac <= state.lac:
        return False
    state.lac = lac
    state.touch()
    return True


def enter_limbo(state: ReplicaState, *, fence: bool) -> None:
    """Record that data of the ledger may be lost, and with `fence` also a fence (rule 2.4)."""
    state.limbo = True
    state.fenced = state.fenced or fence
    state.is_fence_durable = state.is_fence_durable or fence
    state.touch()


def release(state: ReplicaState) -> None:
    """Drop every entry of a ledger that moved away. The ledger stays fenced, so that no late add of
    its writer is acknowledged. Entries that are not stored are unknown (rule 10.1).
    """
    state.fenced = state.is_fence_durable = True
    state.limbo = state.released = True
    state.release_count += 1
    state.highest = state.accepted_highest = state.indexed_highest = NO_ENTRY
    state.length = 0
    state.touch()


def negative(state: ReplicaState | None, *, is_limbo: bool) -> Status:
    """Return the answer for an entry that is not stored (rule 2.4)."""
    if is_limbo or (state is not None and state.limbo):
        return Status.UNKNOWN
    return Status.NO_SUCH_LEDGER if state is None else Status.NO_SUCH_ENTRY


def advertised_lac(state: ReplicaState | None) -> EntryId:
    """Return the LAC to report."""
    return NO_ENTRY if state is None else EntryId(state.lac)

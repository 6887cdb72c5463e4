"""Brings a storage back from its disk: loads the ledger states, replays the log, and decides on
limbo.

Leaves serving to `bookie.storage`.

Invariants: replay applies records in the order of the log, and the latest wins; what the index's
store cannot account for (its mark, or a count and an XOR over the ledger states) is rebuilt from
every segment that is left, in limbo.
Source: protocol rules 2.4, 10.2; storage design, "One log" and "Index".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from bookie import index_pages, ledger_state, records, replay
from bookie.config import StorageConfig
from bookie.disk import Disk
from bookie.errors import FormatError
from bookie.index import Index
from bookie.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO, INDEX_VERSION, Meta
from bookie.index_store import OrderedStore, Transaction
from bookie.ledger_state import LedgerState
from bookie.ledgers import Ledgers
from bookie.records import RECORD_HEADER_BYTES, Record, RecordKind
from bookie.recovery_scan import LogReplay, ReplayOutcome, find_segments
from bookie.segments import Segments, segment_name
from bookie.wire.batch import Buffer, parse_header
from bookie.wire.errors import BatchError
from metadata.ids import LedgerId

INDEX_NAME: Final = "index"
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Opened:
    """The parts of a storage, as its disk left them."""

    ledgers: Ledgers
    index: Index
    segments: Segments
    outcome: ReplayOutcome


async def open_parts(disk: Disk, config: StorageConfig, *, has_lost_data: bool = False) -> Opened:
    """Load and replay. Raises FormatError for files of a newer release, DirectoryLockedError,
    DiskFailedError.
    """
    await disk.lock()
    segments = await find_segments(disk)
    store = await disk.open_index(INDEX_NAME, config.index_map_bytes)
    ledgers = Ledgers()
    meta = await _load_meta(store, ledgers, is_new=not segments.by_number)
    await disk.sync_directory(INDEX_NAME)  # the store syncs its file, not the name of it
    for number, live_bytes in await _load_all(store, index_pages.scan_live_bytes):
        if number in segments.by_number:
            segments.by_number[number].live_bytes = live_bytes
    index = Index(store, config, meta)
    applier = _Applier(ledgers, index, segments)
    if not meta.mark_lsn and meta.flags & FLAG_LIMBO:
        await _apply_cleaned(disk, segments, applier.apply)
    outcome = await LogReplay(disk, segments, meta.mark_lsn, applier.apply).run()
    flags = meta.flags
    if outcome.corrupt:
        flags |= FLAG_LIMBO | FLAG_FENCES_LOST * outcome.may_have_lost_fences
    if has_lost_data:
        flags |= FLAG_LIMBO | FLAG_FENCES_LOST
    if flags != 0 and (outcome.corrupt or has_lost_data or not meta.mark_lsn):
        ledgers.enter_limbo(fence=bool(flags & FLAG_FENCES_LOST))
        await index.set_flags(flags)
    return Opened(ledgers, index, segments, outcome)


async def _load_meta(store: OrderedStore, ledgers: Ledgers, *, is_new: bool) -> Meta:
    """Return the checkpoint's mark with the states loaded; where some are damaged or missing, a
    fresh one in limbo, with those that are left: each has its own CRC.
    """
    meta = await store.view(index_pages.read_meta)
    if meta is not None and meta.version > INDEX_VERSION:
        raise FormatError(INDEX_NAME, f"it has format version {meta.version}, of a newer release")
    count, xor, damaged = await _load_states(store, ledgers)
    if meta is not None and not damaged and (count, xor) == (meta.state_count, meta.state_xor):
        return meta
    is_lost = not is_new or not await store.view(index_pages.is_empty)
    fresh = Meta(INDEX_VERSION, (FLAG_LIMBO | FLAG_FENCES_LOST) * is_lost, 0, 0, 0)

    def begin(transaction: Transaction) -> None:
        for ledger_id in damaged:
            transaction.delete(index_pages.state_key(ledger_id))
        index_pages.write_meta(transaction, replace(fresh, **_totals(transaction)))

    await store.update(begin)
    return fresh


def _totals(transaction: Transaction) -> dict[str, int]:
    """Count the states that are stored, and XOR their CRCs."""
    count, xor, after = 0, 0, -1
    while found := index_pages.scan_states(transaction, after):
        for after, value in found:  # noqa: B007 - the last one is where the next scan begins
            count, xor = count + 1, xor ^ index_pages.crc_of_state(value)
    return {"state_count": count, "state_xor": xor}


async def _load_states(store: OrderedStore, ledgers: Ledgers) -> tuple[int, int, list[int]]:
    """Load every ledger's state; return how many there are, the XOR of their CRCs, and whose are
    damaged.
    """
    count = xor = 0
    damaged: list[int] = []
    for number, value in await _load_all(store, index_pages.scan_states):
        state = ledger_state.decode(LedgerId(number), value)
        if state is None:
            damaged.append(number)
            continue
        if isinstance(state, LedgerState):
            ledgers.states[number] = state
        else:
            ledgers.deleted[number] = state
        count, xor = count + 1, xor ^ index_pages.crc_of_state(value)
    return count, xor, damaged


async def _load_all(
    store: OrderedStore, scan: Callable[[Transaction, int], list[tuple[int, Value]]]
) -> list[tuple[int, Value]]:
    loaded: list[tuple[int, Value]] = []
    after = -1
    while found := await store.view(partial(_scan_from, scan, after)):
        loaded += found
        after = found[-1][0]
    return loaded


def _scan_from(
    scan: Callable[[Transaction, int], list[tuple[int, Value]]],
    after: int,
    transaction: Transaction,
) -> list[tuple[int, Value]]:
    return scan(transaction, after)


async def _apply_cleaned(disk: Disk, segments: Segments, apply: Callable[[Record], None]) -> None:
    """Apply the adds of rewritten segments, which the log does not hold any more."""
    for number, segment in sorted(segments.by_number.items()):
        if segment.is_cleaned:
            file = await disk.open(segment.name)
            reader = replay.SegmentReader(file, number, 0)
            while (part := await reader.next()) is not None:
                if not isinstance(part, replay.Damage):
                    for record in part:
                        apply(record)
            await file.close()


class _Applier:
    """Gives every replayed record its effect."""

    def __init__(self, ledgers: Ledgers, index: Index, segments: Segments) -> None:
        self._ledgers = ledgers
        self._index = index
        self._segments = segments

    def apply(self, record: Record) -> None:
        """Apply one record."""
        header, body = record.header, record.body
        if header.kind is RecordKind.ADDS:
            self._apply_adds(header.lsn, body)
            return
        if header.kind in (RecordKind.HEAD, RecordKind.FOOTER):
            return
        ledger_id = records.decode_ledger(body)
        if ledger_id in self._ledgers.deleted:
            return
        if header.kind is RecordKind.TOMBSTONE:
            self._segments.free(self._index.drop(ledger_id))
            self._ledgers.delete(ledger_id, has_runs=True)
            return
        state = self._ledgers.get_or_make(ledger_id)
        state.is_dirty = True
        if header.kind is RecordKind.FENCE:
            state.fenced = state.is_fence_durable = True
        elif header.kind is RecordKind.EXPLICIT_LAC:
            ledger_state.note_lac(state, records.decode_lac(body))
        elif header.kind is RecordKind.MASTER_KEY:
            state.master_key = records.decode_master_key(body)

    def _apply_adds(self, lsn: int, body: Buffer) -> None:
        try:
            header = parse_header(body)
        except BatchError as error:  # its CRCs hold, so it was written like that
            name = segment_name(records.segment_of(lsn), is_cleaned=False)
            raise FormatError(name, f"the batch at LSN {lsn} makes no sense: {error}") from error
        ledger_id = header.ledger_id
        if ledger_id in self._ledgers.deleted:
            return
        state = self._ledgers.get_or_make(ledger_id)
        size = RECORD_HEADER_BYTES + len(body)
        first = header.first_entry_id
        self._index.insert(ledger_id, first, first + header.count - 1, lsn, size)
        self._segments.by_number[records.segment_of(lsn)].live_bytes += size
        if not header.is_slice:
            ledger_state.note_lac(state, header.lac)
        ledger_state.note_stored(state, header)

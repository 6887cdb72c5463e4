"""Opening of a storage: loads the ledger states, replays the log, and decides on limbo.

Leaves requests to `bookie.storage.bookie_storage`.

Invariants: replay applies records in the order of the log, and the latest wins; if the index's
store is damaged (its mark, or the count and XOR over the ledger states), it is rebuilt in limbo
from all segments that are left.
Source: protocol rules 2.4, 10.2; storage design, "One log" and "Index".
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar, cast

from bookie.config import StorageConfig
from bookie.errors import DiskFailedError, DiskFullError, FormatError
from bookie.files.disk import Disk, OrderedStore, StoreTransaction
from bookie.index import (
    index_pages,
    replica_state,
    stored_runs,
    stored_states,
)
from bookie.index.index import Index
from bookie.index.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO, INDEX_VERSION, CheckpointMeta
from bookie.index.stored_states import StatesCheck, StoredIds
from bookie.log import records, replay
from bookie.log.records import RECORD_HEADER_BYTES, Record, RecordKind
from bookie.log.recovery_scan import LogReplay, ReplayOutcome, find_segments
from bookie.log.reserve import Reserve
from bookie.log.segments import Segments, StartFiles, segment_name
from bookie.storage.checkpoints import LimboVerdict, StartCheckpoints
from bookie.storage.cold_ledgers import load_states
from bookie.storage.ledgers import RUNS_LEFT_MAX, Ledgers
from bookie.wire.batch import Buffer, parse_header
from bookie.wire.errors import BatchError

INDEX_NAME: Final = "index"
KEYS_PER_VIEW: Final = 20_000
"""Number of keys that one transaction of a start reads."""
_NO_INDEX: Final = "the index was lost or is damaged"
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class OpenedStorage:
    """Parts of an opened storage."""

    ledgers: Ledgers
    index: Index
    segments: Segments
    outcome: ReplayOutcome
    limbo_reason: str
    """Reason why this start entered limbo; empty when it did not."""


@dataclass(frozen=True, slots=True)
class KnownDisk:
    """Knowledge of a disk before it is read (rule 2.6)."""

    lost_data: str = ""
    """Reason why the disk may lack stored data; empty when there is none."""
    recorded_end_lsn: int = 0
    """Recorded end of the log: a log that ends before it lacks stored data."""


WHOLE: Final = KnownDisk()


async def open_parts(disk: Disk, config: StorageConfig, known: KnownDisk = WHOLE) -> OpenedStorage:
    """Load the states and replay the log; if that fails, the index is closed again, and the disk is
    left to the caller. Raises FormatError for files of a newer release, DirectoryLockedError,
    IndexFileError, DiskFailedError.
    """
    await disk.lock()
    segments = await find_segments(disk)
    store = await disk.open_index(INDEX_NAME, config.index_map_bytes)
    try:
        return await _replayed(disk, config, known, segments, store)
    except (Exception, asyncio.CancelledError):
        await store.close()
        raise


async def _replayed(
    disk: Disk, config: StorageConfig, known: KnownDisk, segments: Segments, store: OrderedStore
) -> OpenedStorage:
    """Load the states from the index, and replay the log after its mark."""
    ledgers = Ledgers(config.hot_ledgers_max)
    reserve = Reserve(disk, config)
    meta, ids = await _load_meta(store, ledgers, reserve, is_new=not segments.by_number)
    await disk.sync_directory(INDEX_NAME)  # the store syncs its file, not the file's name
    await _load_segments(store, segments, meta)
    index = Index(store, config, meta, ids)
    applier = _Applier(ledgers, index, segments)
    verdict = LimboVerdict(ledgers, index, has_lost_data=bool(known.lost_data))
    checkpoints = StartCheckpoints(config, reserve, index, segments, verdict)
    store_if_due = partial(checkpoints.store_if_due, ledgers)
    if not meta.mark_lsn and meta.flags & FLAG_LIMBO:
        await _apply_cleaned(disk, segments, applier, store_if_due)
    log = LogReplay(disk, segments, meta.mark_lsn, applier.apply, applier.prepare, store_if_due)
    verdict.outcome = log.outcome
    await log.read()
    lost_data = known.lost_data or missing_end(log.outcome.end_lsn, known.recorded_end_lsn)
    if lost_data:
        # Durable before the tail is copied: the copy is after every recorded position.
        verdict.note_lost_data()
        await verdict.note_loss()
    outcome = await _with_room(reserve, log.settle)
    await checkpoints.finish(ledgers, outcome.end_lsn)
    reason = lost_data or (outcome.describe_loss() if outcome.corrupt else _NO_INDEX)
    return OpenedStorage(
        ledgers, index, segments, outcome, reason if verdict.flags is not None else ""
    )


def missing_end(end_lsn: int, recorded_end_lsn: int) -> str:
    """Return why a log that ends at `end_lsn` lacks stored data; empty when it does not."""
    if end_lsn >= recorded_end_lsn:
        return ""
    return (
        f"the log ends at LSN {end_lsn}, before the recorded position {recorded_end_lsn}: this is"
        " an old copy, or its newest part was lost"
    )


async def _with_room(reserve: Reserve, work: Callable[[], Awaitable[Value]]) -> Value:
    """Do work that a start requires; on a full disk, remove the reserve and try again."""
    try:
        return await work()
    except DiskFullError:
        await reserve.release()
        return await work()


async def _load_segments(store: OrderedStore, segments: Segments, meta: CheckpointMeta) -> None:
    """Read from the index what it stores about segments. Number new segments above all that it ever
    named, because the index may still name places in a missing segment.
    """
    segments.note_used(records.segment_of(meta.mark_lsn))
    for number, live_bytes in await _load_all(store, stored_runs.LIVE_BYTES):
        if live_bytes is not None:
            segments.note_used(number)
        if number in segments.by_number:
            segments.by_number[number].live_bytes = live_bytes or 0
    for number, value in await _load_all(store, stored_runs.MEASURED):
        if value is not None:
            segments.note_used(number)
        segment = segments.by_number.get(number)
        if value is not None and segment is not None:
            measured = stored_runs.measured_of(value)
            segment.record_count, segment.mean_run_bytes = measured
            segment.is_measure_stored = True
    for number, value in await _load_all(store, stored_runs.DAMAGED):
        if value is not None and number in segments.by_number:
            segments.by_number[number].is_damaged = True


async def _load_meta(
    store: OrderedStore, ledgers: Ledgers, reserve: Reserve, *, is_new: bool
) -> tuple[CheckpointMeta, StoredIds]:
    """Verify the stored states; return the checkpoint's mark and the ledgers with a state. If
    states are damaged or missing, store and return a new mark in limbo and keep the undamaged
    states: each has its own CRC.

    The content of the store may be only in the page cache. So this function commits once, which
    makes all of the store durable, before any decision relies on it (rule 2.5).
    """
    meta = await store.view(index_pages.read_meta)
    if meta is not None and meta.version > INDEX_VERSION:
        raise FormatError(
            INDEX_NAME,
            f"it has format version {meta.version}, so start the newer release that wrote it",
        )
    pair_count = store.sizes().pair_count
    check = await _check_states(store)
    await _check_keys(store, len(check.ids) + len(check.damaged), pair_count)
    ledgers.count, ledgers.tombstone_count = check.held_count, check.deleted_count
    ledgers.highest_id = check.last_id
    ledgers.raise_horizon(check.horizon)
    ledgers.runs_left.update(dict.fromkeys(check.runs_left))
    ledgers.has_more_runs_left = check.has_more_runs_left
    counted = (check.count, check.xor)
    is_damaged = bool(check.damaged) or check.is_horizon_damaged
    if meta is not None and not is_damaged and counted == (meta.state_count, meta.state_xor):
        again = partial(index_pages.write_meta, meta=meta)
        await _with_room(reserve, lambda: store.update(again))
        return meta, check.ids
    is_lost = not is_new or not await store.view(index_pages.is_empty)
    fresh = CheckpointMeta(INDEX_VERSION, (FLAG_LIMBO | FLAG_FENCES_LOST) * is_lost, 0, 0, 0)

    def begin(transaction: StoreTransaction) -> None:
        for ledger_id in check.damaged:
            transaction.delete(index_pages.state_key(ledger_id))
        if check.is_horizon_damaged:
            stored_states.remove_horizon(transaction)
        index_pages.write_meta(
            transaction, replace(fresh, state_count=check.count, state_xor=check.xor)
        )

    await _with_room(reserve, lambda: store.update(begin))
    return fresh, check.ids


async def _check_states(store: OrderedStore) -> StatesCheck:
    """Verify every stored state, without loading it."""
    check = StatesCheck()
    while not check.is_done:
        next_page = partial(stored_states.check_some, check=check, runs_left_max=RUNS_LEFT_MAX)
        check = await store.view(next_page)
    return check


async def _check_keys(store: OrderedStore, state_count: int, pair_count: int) -> None:
    """Check that the keys ascend and that none is missing; the states, which are the last, were
    counted before. A search may miss the keys beside a damaged one, and a change of the store then
    adds keys where no later search finds them. Raises DiskFailedError.
    """
    key_count, after = state_count, b"\0"
    while keys := await store.view(partial(_scan_keys, start=after)):
        end = bisect_left(keys, index_pages.STATES_PREFIX)
        key_count += end
        if end < len(keys):
            break
        after = keys[-1] + b"\0"
    if key_count != pair_count:
        raise DiskFailedError(
            INDEX_NAME,
            f"it has {pair_count} keys, and {key_count} are found in order: a page of its file is"
            " damaged. Run: quire bookie rebuild-index DIR",
        )


def _scan_keys(transaction: StoreTransaction, start: bytes) -> list[bytes]:
    return transaction.scan_keys(start, KEYS_PER_VIEW)


async def _load_all(store: OrderedStore, kind: bytes) -> list[tuple[int, int | None]]:
    loaded: list[tuple[int, int | None]] = []
    after = -1
    scan = stored_runs.scan_segments
    while page := await store.view(partial(scan, after=after, kind=kind)):
        loaded += page
        after = page[-1][0]
    return loaded


async def _apply_cleaned(
    disk: Disk,
    segments: Segments,
    applier: "_Applier",
    store_if_due: Callable[[int], Awaitable[None]],
) -> None:
    """Apply the adds of rewritten segments, which are no longer in the log."""
    files = StartFiles(disk)
    for number, segment in sorted(segments.by_number.items()):
        if segment.is_cleaned:
            file = await files.open(segment.name)
            reader = replay.SegmentReader(file, number, 0)
            while (part := await reader.next()) is not None:
                if not isinstance(part, replay.Damage):
                    await applier.prepare(part)
                    for record in part:
                        applier.apply(record)
                    await store_if_due(0)
            await file.close()


class _Applier:
    """Application of replayed records to the ledgers and the index."""

    def __init__(self, ledgers: Ledgers, index: Index, segments: Segments) -> None:
        self._ledgers = ledgers
        self._index = index
        self._segments = segments

    async def prepare(self, parsed: list[Record]) -> None:
        """Load the states of the ledgers of some records. Delete stored runs of released ledgers: a
        crash may have prevented that.
        """
        ledger_ids = dict.fromkeys(map(_ledger_of, parsed))
        ledger_ids.pop(None, None)
        await load_states(self._ledgers, self._index, cast("Iterable[int]", ledger_ids))
        released = dict.fromkeys(
            records.decode_ledger(record.body)
            for record in parsed
            if record.header.kind is RecordKind.RELEASED
        )
        await self._index.delete_all(list(released), self._segments.free)

    def apply(self, record: Record) -> None:
        """Apply one record. Its ledger must not be cold."""
        header, body = record.header, record.body
        if header.kind is RecordKind.ADDS:
            self._apply_adds(header.lsn, body)
            return
        if header.kind in (RecordKind.HEAD, RecordKind.FOOTER):
            return
        ledger_id = records.decode_ledger(body)
        if self._ledgers.is_deleted(ledger_id):
            return
        if header.kind is RecordKind.TOMBSTONE:
            self._segments.free(self._index.drop(ledger_id))
            self._ledgers.delete(ledger_id, has_runs=True)
            return
        state = self._ledgers.get_or_make(ledger_id)
        state.touch()
        if header.kind is RecordKind.FENCE:
            state.fenced = state.is_fence_durable = True
        elif header.kind is RecordKind.RELEASED:
            self._segments.free(self._index.drop(ledger_id))
            replica_state.release(state)
        elif header.kind is RecordKind.EXPLICIT_LAC:
            replica_state.note_lac(state, records.decode_lac(body))
        elif header.kind is RecordKind.MASTER_KEY:
            state.master_key = records.decode_master_key(body)

    def _apply_adds(self, lsn: int, body: Buffer) -> None:
        try:
            header = parse_header(body)
        except BatchError as error:  # its CRCs match, so it was written this way
            name = segment_name(records.segment_of(lsn), is_cleaned=False)
            raise FormatError(
                name, f"the batch at LSN {lsn} is not valid ({error}): replace this bookie"
            ) from error
        ledger_id = header.ledger_id
        if self._ledgers.is_deleted(ledger_id):
            return
        state = self._ledgers.get_or_make(ledger_id)
        size = RECORD_HEADER_BYTES + len(body)
        first = header.first_entry_id
        self._index.insert(ledger_id, first, first + header.count - 1, lsn, size)
        self._segments.by_number[records.segment_of(lsn)].live_bytes += size
        if not header.is_slice:
            replica_state.note_lac(state, header.lac)
        replica_state.note_stored(state, header)


def _ledger_of(record: Record) -> int | None:
    """Return the ledger id of a record; None when it has none or is not valid."""
    kind = record.header.kind
    if kind in (RecordKind.HEAD, RecordKind.FOOTER):
        return None
    if kind is not RecordKind.ADDS:
        return records.decode_ledger(record.body)
    try:
        return parse_header(record.body).ledger_id
    except BatchError:
        return None  # `apply` reports the error with its place

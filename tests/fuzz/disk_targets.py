"""Fuzz targets for the files that a bookie reads from its own disks.

Leaves crashes, which tear data written in order, to the tests of the simulated disk.

Invariants: bytes that changed without their checksums never count as stored bytes. A second start
finds the same contents as the first one.
"""

import random
from typing import Final

from bookie.config import KIB, StorageConfig
from bookie.errors import CookieDamagedError, FormatError
from bookie.identity.cookie import Cookie, cookies_of, decode_cookie, encode_cookie
from bookie.index.replica_state import ReplicaState, decode, encode_deleted
from bookie.log import records, replay
from bookie.log.records import Record, RecordKind
from bookie.log.recovery_scan import LogReplay, ReplayOutcome, find_segments
from bookie.log.replay import list_records
from bookie.storage.opening import open_parts
from bookie.wire.batch import BatchView, build_batch
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.registry.cookies import CookieRecord
from tests.fuzz.findings import require
from tests.fuzz.index_target import index_target
from tests.fuzz.instant import InstantDisk, drive, platter_with
from tests.fuzz.sealing import seal_cookie, seal_first_record, seal_segment
from tests.fuzz.targets import ParserTarget
from tests.fuzz.wire_targets import BATCHES
from tests.simulation.disk import Platter

FIRST: Final = "00000001.log"
SECOND: Final = "00000002.log"
CLEANED: Final = "00000003.clean"
CONFIG: Final = StorageConfig(
    segment_bytes_max=64 * KIB, index_map_bytes=KIB, reserve_bytes_min=KIB, reserve_share=0.0
)
RECORD_LSN: Final = records.lsn_of(1, 0)
_FIELDS: Final = ((2, 1), (3, 1), (4, 4), (8, 8), (16, 8), (24, 4), (36, 4), (40, 8), (48, 8))

Key = tuple[int, int, bytes]


def build_segment(number: int, bodies: list[tuple[RecordKind, bytes]], *, end_before: int) -> bytes:
    """Return a segment as the log writes it, each record synced before the next, with a footer."""
    data, runs = bytearray(), bytearray()
    bodies = [(RecordKind.HEAD, records.encode_head(end_before, 0)), *bodies]
    for kind, body in bodies:
        lsn = records.lsn_of(number, len(data))
        if kind is RecordKind.ADDS:
            size = records.RECORD_HEADER_BYTES + len(body)
            runs += records.footer_run(body, len(data), size)
        synced_lsn = lsn if data else end_before
        data += records.encode_header(kind, body, lsn, synced_lsn) + body
    records.end_footer(runs, len(data))
    lsn = records.lsn_of(number, len(data))
    return bytes(data + records.encode_header(RecordKind.FOOTER, runs, lsn, lsn) + runs)


def _bodies(ledger: int) -> list[tuple[RecordKind, bytes]]:
    ledger_id = LedgerId(ledger)
    batch = build_batch(ledger_id, EntryId(0), EntryId(-1), 0, [b"a" * 30, b"", b"b"], ledger)
    more = build_batch(ledger_id, EntryId(3), EntryId(2), 31, [b"c" * 200], ledger)
    return [
        (RecordKind.MASTER_KEY, records.encode_master_key(ledger_id, bytes(32))),
        (RecordKind.ADDS, bytes(batch)),
        (RecordKind.EXPLICIT_LAC, records.encode_lac(ledger_id, EntryId(2))),
        (RecordKind.ADDS, bytes(more)),
        (RecordKind.FENCE, records.encode_ledger(ledger_id)),
    ]


_ONE: Final = build_segment(1, _bodies(7) + _bodies(8), end_before=0)
_TWO: Final = build_segment(2, _bodies(9), end_before=records.lsn_of(1, len(_ONE)))
_CLEANED: Final = build_segment(3, [_bodies(11)[1]], end_before=0)


def sample_segments() -> tuple[bytes, ...]:
    """Return complete segments."""
    deleted = [*_bodies(7), (RecordKind.TOMBSTONE, records.encode_ledger(LedgerId(7)))]
    large = build_batch(LedgerId(12), EntryId(0), EntryId(-1), 0, [bytes(20)] * 60, 12)
    return (
        _ONE,
        build_segment(1, deleted, end_before=0),
        build_segment(1, [(RecordKind.ADDS, bytes(large))], end_before=0),
    )


SEGMENTS: Final = sample_segments()


def _records_of(data: bytes, number: int) -> dict[Key, None]:
    found, _, _ = replay.scan(memoryview(data), records.lsn_of(number, 0))
    return dict.fromkeys(map(_key, found))


def _record_of(batch: bytes) -> bytes:
    return records.encode_header(RecordKind.ADDS, batch, RECORD_LSN, 0) + batch


def _key(record: Record) -> Key:
    return record.header.kind, record.header.lsn, bytes(record.body)


_STORED: Final = {
    key: None
    for data, number in [
        *((segment, 1) for segment in SEGMENTS),
        *((_record_of(batch), 1) for batch in BATCHES),
        (_TWO, 2),
        (_CLEANED, 3),
    ]
    for key in _records_of(data, number)
}

_STORED_CONTENT: Final = {(kind, body): None for kind, _, body in _STORED}
_COPIES_LSN: Final = records.lsn_of(2, 0)
"""A start copies the unproved tail of the log into a segment after the first."""


def check_segment(data: bytes, _origin: bytes, is_sealed: bool) -> bool:
    """Start a bookie on a segment, alone or with others after it, and start it again."""
    files = {FIRST: data}
    if len(data) % 3:
        files[SECOND] = _TWO
    if len(data) % 3 == 2:
        files[CLEANED] = _CLEANED
    platter = platter_with(**files)
    applied: list[Key] = []
    try:
        outcome = drive(_replay(platter, applied))
    except FormatError:
        return False
    if not is_sealed:
        for key in applied:
            is_copy = (key[0], key[2]) in _STORED_CONTENT and key[1] >= _COPIES_LSN
            require(is_copy or key in _STORED, "a damaged record was taken for a stored one")
    platter.locked = False
    try:
        drive(_start(platter, outcome, is_sealed=is_sealed))
    except FormatError:
        require(is_sealed, "damage is never taken for another format")
        return False
    return bool(applied)


async def _replay(platter: Platter, applied: list[Key]) -> ReplayOutcome:
    disk = InstantDisk(platter, random.Random(1))
    segments = await find_segments(disk)
    return await LogReplay(disk, segments, 0, lambda record: applied.append(_key(record))).run()


async def _start(platter: Platter, before: ReplayOutcome, *, is_sealed: bool) -> None:
    opened = await open_parts(InstantDisk(platter, random.Random(1)), CONFIG)
    outcome = opened.outcome
    require(outcome.record_count == before.record_count, "a second start finds the same records")
    require(not outcome.torn_bytes, "a second start finds no torn tail")
    is_same = outcome.corrupt == before.corrupt
    require(is_same or is_sealed, "a second start finds the same damage")
    for number in sorted(opened.segments.by_number):
        segment = opened.segments.by_number[number]
        listed = await list_records(opened.segments, segment)
        require(listed is not None or segment.is_damaged, "what cannot be listed is damaged")
        file = await opened.segments.open_file(number)
        if listed is None:
            continue
        async for runs in listed.slices():
            lies_within = all(run.offset + run.size <= file.size for run in runs)
            require(lies_within or is_sealed, "a footer names what the segment holds")


def check_record(data: bytes, _origin: bytes, is_sealed: bool) -> bool:
    """Scan bytes for records, and search for the next one after damage."""
    view = memoryview(data)
    found, taken, stopper = replay.scan(view, RECORD_LSN)
    require(taken == sum(record.header.size for record in found), "records lie back to back")
    for record in found:
        header = record.header
        again = records.encode_header(header.kind, record.body, header.lsn, header.synced_lsn)
        place = records.offset_of(header.lsn)
        is_same = data[place : place + len(again)] == again
        require(is_same or header.kind is RecordKind.ADDS, "a header is the same encoded again")
        if header.kind is RecordKind.ADDS and not is_sealed:
            BatchView(record.body).verify_crc()
        if not is_sealed:
            require(_key(record) in _STORED, "a damaged record was taken for a stored one")
    place_behind = records.find_header(data, taken + 1, RECORD_LSN)
    require(place_behind is None or place_behind > taken, "the next record lies behind")
    require(stopper is None or taken < len(data), "nothing stops a scan at the end")
    records.newer_version(data)
    return bool(found)


def sample_states() -> tuple[bytes, ...]:
    """Return stored ledger states of ledger 7."""
    state = ReplicaState(LedgerId(7))
    plain = state.encode(-1)
    state.fenced, state.limbo, state.master_key, state.lac, state.length = (
        True,
        True,
        b"k" * 32,
        3,
        9,
    )
    return (
        plain,
        state.encode(9),
        encode_deleted(LedgerId(7), has_runs=True),
        encode_deleted(LedgerId(7), has_runs=False),
    )


_STATES: Final = sample_states()


def check_state(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
    """Read one ledger's stored state."""
    found = decode(LedgerId(7), data)
    require((found is not None) == (data in _STATES), "a damaged state was taken for a stored one")
    if isinstance(found, ReplicaState):
        require(found.encode(found.highest) == data, "a state is the same encoded again")
    return found is not None


def sample_cookies() -> tuple[bytes, ...]:
    """Return cookies' files."""
    record = CookieRecord(BookieId("bookie-7f"), bytes(range(16)), 1_700_000_000_000, 3, bytes(32))
    return tuple(encode_cookie(cookie) for cookie in cookies_of(record, bytes(16), 4))


def check_cookie(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
    """Read a cookie's file."""
    try:
        found: Cookie = decode_cookie(data, "a directory")
    except CookieDamagedError:
        return False
    again = encode_cookie(found)
    require(decode_cookie(again, "a directory") == found, "a cookie is the same encoded again")
    return True


def disk_targets() -> list[ParserTarget]:
    """Return the targets of this module."""
    return [
        ParserTarget(
            "record",
            check_record,
            (*SEGMENTS, *(_record_of(batch) for batch in BATCHES)),
            seal=seal_first_record,
            fields=_FIELDS,
        ),
        ParserTarget(
            "segment",
            check_segment,
            SEGMENTS,
            seal=seal_segment,
            fields=_FIELDS,
            weight=0.4,
            allocation_base_bytes=2048 * KIB,
        ),
        index_target(),
        ParserTarget("ledger_state", check_state, _STATES, weight=0.5),
        ParserTarget("cookie", check_cookie, sample_cookies(), seal=seal_cookie, weight=0.7),
    ]

"""Summary of what is left to repair, as the auditor last wrote it, and its bytes. Pure.

Leaves storing it to `status_store.py`, and counting to the auditor.

Format: the value of `/repair/status` is a msgpack array

    index  field              msgpack type
    0      format version     int, 1
    1      auditor id         str
    2      auditor since      int, ms
    3      last audit         int, ms; nil before the first complete one
    4      written            int, ms
    5      totals             [[urgency int, ledgers int, bytes int]]
    6      bytes left         int
    7      bytes per second   int
    8      ETA                int, s; nil when it is unknown
    9      blocked            [[reason str, ledgers int]]
    10     lost ledgers       int
    11     away               [[bookie id str, since int, ms]]

Invariants: at most BLOCKED_REASONS_MAX reasons are stored, those of the most ledgers first, and at
most AWAY_MAX bookies, those that are away for the longest time first; for any bytes,
decoding returns a summary or raises MetadataFormatError.

Source: protocol rule 9.3.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId, is_bookie_id
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    int_of,
    optional_int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.repair.jobs import URGENCY_MAX

BLOCKED_REASONS_MAX: Final = 20
AWAY_MAX: Final = 1_000

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 12
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class UrgencyTotal:
    """Ledgers of one urgency that need a repair, and the bytes to copy for them."""

    urgency: int
    ledgers: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BlockedTotal:
    """Ledgers that cannot be repaired for one reason, or wait for it."""

    reason: str
    ledgers: int


@dataclass(frozen=True, slots=True)
class AwayBookie:
    """A bookie that is not registered, and does not count as lost yet."""

    bookie_id: BookieId
    since_ms: int
    """Time since which the auditor misses it, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class RepairStatus:
    """Summary of the auditor."""

    auditor_id: str
    since_ms: int
    """Time at which the auditor was elected, in ms since 1970."""
    audited_ms: int | None
    """Time at which the last complete audit ended; None before the first one of this auditor."""
    written_ms: int
    """Time of this summary."""
    totals: tuple[UrgencyTotal, ...] = ()
    """What needs a repair, the most urgent first; an urgency without ledgers may be left out."""
    bytes_left: int = 0
    bytes_per_s: int = 0
    """Bytes copied per second in the last minute, by all workers."""
    eta_s: int | None = None
    """Seconds until nothing is left, at this rate; None when unknown: nothing was copied for a
    minute.
    """
    blocked: tuple[BlockedTotal, ...] = ()
    """Ledgers that cannot be repaired, by the reason."""
    lost_ledgers: int = 0
    """Ledgers some of whose entries have no good copy."""
    away: tuple[AwayBookie, ...] = ()
    """Bookies that are away, the one that is away for the longest time first."""


def pack_status(what: str, status: RepairStatus) -> bytes:
    """Return the stored form."""
    blocked = sorted(status.blocked, key=lambda each: (-each.ledgers, each.reason))
    totals: list[Packed] = [[each.urgency, each.ledgers, each.size_bytes] for each in status.totals]
    reasons: list[Packed] = [[each.reason, each.ledgers] for each in blocked[:BLOCKED_REASONS_MAX]]
    longest = sorted(status.away, key=lambda each: (each.since_ms, each.bookie_id))[:AWAY_MAX]
    away: list[Packed] = [[each.bookie_id, each.since_ms] for each in longest]
    fields: list[Packed] = [
        _FORMAT_VERSION,
        status.auditor_id,
        status.since_ms,
        status.audited_ms,
        status.written_ms,
        totals,
        status.bytes_left,
        status.bytes_per_s,
        status.eta_s,
        reasons,
        status.lost_ledgers,
        away,
    ]
    return pack_checked(what, fields, partial(unpack_status, what))


def unpack_status(what: str, value: bytes) -> RepairStatus:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        return RepairStatus(
            auditor_id=text_of(fields[1]),
            since_ms=_count_of(fields[2]),
            audited_ms=optional_int_of(fields[3], 0, _INT64_MAX),
            written_ms=_count_of(fields[4]),
            totals=tuple(_total_of(each) for each in array_of(fields[5])),
            bytes_left=_count_of(fields[6]),
            bytes_per_s=_count_of(fields[7]),
            eta_s=optional_int_of(fields[8], 0, _INT64_MAX),
            blocked=tuple(_blocked_of(each) for each in array_of(fields[9])),
            lost_ledgers=_count_of(fields[10]),
            away=tuple(_away_of(each) for each in array_of(fields[11])),
        )
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


def _total_of(field: Packed) -> UrgencyTotal:
    urgency, ledgers, size_bytes = _row_of(field, 3)
    return UrgencyTotal(int_of(urgency, 0, URGENCY_MAX), _count_of(ledgers), _count_of(size_bytes))


def _blocked_of(field: Packed) -> BlockedTotal:
    reason, ledgers = _row_of(field, 2)
    return BlockedTotal(text_of(reason), _count_of(ledgers))


def _away_of(field: Packed) -> AwayBookie:
    bookie_id, since_ms = _row_of(field, 2)
    text = text_of(bookie_id)
    if not is_bookie_id(text):
        raise FieldError(f"{text!r} is not the id of a bookie")
    return AwayBookie(BookieId(text), _count_of(since_ms))


def _row_of(field: Packed, count: int) -> list[Packed]:
    row = array_of(field)
    if len(row) != count:
        raise FieldError(f"a row has {len(row)} fields instead of {count}")
    return row


def _count_of(field: Packed) -> int:
    return int_of(field, 0, _INT64_MAX)

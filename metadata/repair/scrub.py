"""Record of one bookie's scrub: how far it is, and which stored entries are damaged. Pure.

A scrub is a check of everything that a bookie stores. Leaves storing the record to
`scrub_store.py`, and checking to `bookie.scrubber`.

Format: the value of `/repair/scrubs/<bookie id>` is a msgpack array

    index  field              msgpack type
    0      format version     int, 1
    1      requested          int, ms; 0 for never
    2      served             int, ms
    3      began              int, ms; 0 for never
    4      ended              int, ms; 0 for never
    5      next ledger        int; nil while no scrub is under way
    6      next entry         int
    7      checked bytes      int
    8      bad ranges         [[ledger id int, first entry int, last entry int]]

Invariants: `requested` is written by operators, and everything else by the bookie alone; at most
BAD_RANGES_MAX ranges are stored; for any bytes, decoding returns a record or raises
MetadataFormatError.

Source: protocol rule 9.12.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from metadata.errors import MetadataFormatError
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, BookieId, EntryId, LedgerId
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    int_of,
    optional_int_of,
    pack_checked,
    unpack_versioned,
)

BAD_RANGES_MAX: Final = 1_000
"""Maximum number of bad ranges that a bookie remembers. When it is reached, others are found again
after some of these were repaired.
"""

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 9
_RANGE_FIELDS: Final = 3
_INT64_MAX: Final = 2**63 - 1


class BadRange(NamedTuple):
    """Consecutive entries of one ledger whose stored copy is damaged."""

    ledger_id: LedgerId
    first_entry_id: EntryId
    last_entry_id: EntryId


class ScrubPosition(NamedTuple):
    """Place of a scrub: everything before it is checked."""

    ledger_id: int
    """At most LEDGER_ID_MAX + 1, the end."""
    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class ScrubRecord:
    """Scrub of one bookie. The default is that of a bookie without a node."""

    requested_ms: int = 0
    """Time of the last request to check this bookie, in ms since 1970; 0 for no request."""
    served_ms: int = 0
    """Time of the last request for which a scrub has begun."""
    began_ms: int = 0
    """Time at which the last scrub began; 0 before the first one."""
    ended_ms: int = 0
    """Time at which the last complete scrub ended; 0 before the first one."""
    position: ScrubPosition | None = None
    """Where the scrub under way continues; None if there is none."""
    checked_bytes: int = 0
    """Bytes of batches that the scrub under way, or else the last one, has checked."""
    bad: tuple[BadRange, ...] = ()
    """Damaged ranges that are not repaired yet, ascending and without overlap."""
    is_unreadable: bool = False
    """Whether this release cannot read the record; never stored."""

    @property
    def bad_entries(self) -> int:
        """Number of damaged entries."""
        return sum(each.last_entry_id - each.first_entry_id + 1 for each in self.bad)

    def bad_of(self, ledger_id: LedgerId) -> tuple[BadRange, ...]:
        """Return the damaged ranges of one ledger."""
        return tuple(each for each in self.bad if each.ledger_id == ledger_id)


NEVER_SCRUBBED: Final = ScrubRecord()
"""The record of a bookie without a node."""

ScrubRecords = dict[BookieId, ScrubRecord]


def pack_scrub(what: str, record: ScrubRecord) -> bytes:
    """Return the stored form."""
    position = record.position
    bad: list[Packed] = [list(each) for each in record.bad]
    return pack_checked(
        what,
        [
            _FORMAT_VERSION,
            record.requested_ms,
            record.served_ms,
            record.began_ms,
            record.ended_ms,
            None if position is None else position.ledger_id,
            0 if position is None else position.entry_id,
            record.checked_bytes,
            bad,
        ],
        partial(unpack_scrub, what),
    )


def unpack_scrub(what: str, value: bytes) -> ScrubRecord:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        ledger_id = optional_int_of(fields[5], 0, LEDGER_ID_MAX + 1)
        entry_id = int_of(fields[6], 0, ENTRY_ID_MAX)
        bad = array_of(fields[8])
        if len(bad) > BAD_RANGES_MAX:
            raise FieldError(f"it has {len(bad)} bad ranges, at most {BAD_RANGES_MAX} are allowed")
        return ScrubRecord(
            requested_ms=_count_of(fields[1]),
            served_ms=_count_of(fields[2]),
            began_ms=_count_of(fields[3]),
            ended_ms=_count_of(fields[4]),
            position=None if ledger_id is None else ScrubPosition(ledger_id, EntryId(entry_id)),
            checked_bytes=_count_of(fields[7]),
            bad=tuple(map(_range_of, bad)),
        )
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


def scrub_of(what: str, value: bytes) -> ScrubRecord:
    """Read a stored form; one that cannot be read is marked so, and has nothing else."""
    try:
        return unpack_scrub(what, value)
    except MetadataFormatError:
        return ScrubRecord(is_unreadable=True)


def _range_of(field: Packed) -> BadRange:
    row = array_of(field)
    if len(row) != _RANGE_FIELDS:
        raise FieldError(f"a range has {len(row)} fields instead of {_RANGE_FIELDS}")
    ledger_id = int_of(row[0], 0, LEDGER_ID_MAX)
    first = int_of(row[1], 0, ENTRY_ID_MAX)
    last = int_of(row[2], first, ENTRY_ID_MAX)
    return BadRange(LedgerId(ledger_id), EntryId(first), EntryId(last))


def _count_of(field: Packed) -> int:
    return int_of(field, 0, _INT64_MAX)

"""Record of one bookie's scrub: how far it is, and which stored entries are damaged. Pure.

A scrub is a check of everything that a bookie stores. Leaves storing the record to
`scrub_store.py`, and checking to `bookie.scrubber`.

Invariant: `requested_ms` is written by operators, and everything else by the bookie alone.

Source: protocol rule 9.12.
"""

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from metadata.ids import LEDGER_ID_MAX, BookieId, EntryId, LedgerId
from metadata.records import NOT_STORED, Bytes, Ms, array, codec_of, row_of, whole

BAD_RANGES_MAX: Final = 1_000
"""Maximum number of bad ranges that a bookie remembers. When it is reached, others are found again
after some of these were repaired.
"""


class BadRange(NamedTuple):
    """Consecutive entries of one ledger whose stored copy is damaged."""

    ledger_id: LedgerId
    first_entry_id: EntryId
    last_entry_id: EntryId


def _check_range(bad: BadRange) -> None:
    if bad.last_entry_id < bad.first_entry_id:
        raise ValueError(f"the range {bad.first_entry_id}..{bad.last_entry_id} ends too early")


class ScrubPosition(NamedTuple):
    """Place of a scrub: everything before it is checked."""

    ledger_id: Annotated[int, whole(0, LEDGER_ID_MAX + 1)]
    """LEDGER_ID_MAX + 1 is the end."""
    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class ScrubRecord:
    """Scrub of one bookie. The default is that of a bookie without a node."""

    requested_ms: Ms = 0
    """Time of the last request to check this bookie, in ms since 1970; 0 for no request."""
    served_ms: Ms = 0
    """Time of the last request for which a scrub has begun."""
    began_ms: Ms = 0
    """Time at which the last scrub began; 0 before the first one."""
    ended_ms: Ms = 0
    """Time at which the last complete scrub ended; 0 before the first one."""
    position: ScrubPosition | None = None
    """Where the scrub under way continues; None if there is none."""
    checked_bytes: Bytes = 0
    """Bytes of batches that the scrub under way, or else the last one, has checked."""
    bad: Annotated[tuple[BadRange, ...], array(row_of(BadRange, _check_range), BAD_RANGES_MAX)] = ()
    """Damaged ranges that are not repaired yet, ascending and without overlap."""
    is_unreadable: Annotated[bool, NOT_STORED] = False
    """Whether this release cannot read the record."""

    @property
    def bad_entries(self) -> int:
        """Number of damaged entries."""
        return sum(bad_range.last_entry_id - bad_range.first_entry_id + 1 for bad_range in self.bad)

    def bad_of(self, ledger_id: LedgerId) -> tuple[BadRange, ...]:
        """Return the damaged ranges of one ledger."""
        return tuple(bad_range for bad_range in self.bad if bad_range.ledger_id == ledger_id)


SCRUB_CODEC: Final = codec_of(ScrubRecord)
NEVER_SCRUBBED: Final = ScrubRecord()
"""The record of a bookie without a node."""

ScrubRecords = dict[BookieId, ScrubRecord]

"""Schedule of a scrub: what is checked next, and when. Pure.

Leaves reading to `bookie.storage.ledger_reads`, and waiting and storing to `bookie.scrub.scrubber`.

A scrub checks the ledgers in the order of their ids, and of each ledger the stored runs in the
order of their entries, as the index names them. So what no ledger needs any more is never read, and
cleaning may move runs at any time.

Invariants: a scrub that began continues where it was, also after a restart; a request that comes
during a scrub leads to one more scrub; nothing is checked while the rate is 0.

Source: protocol rule 9.12.
"""

from dataclasses import dataclass, replace
from typing import Final

from metadata.ids import EntryId, LedgerId
from metadata.repair.scrub import ScrubPosition, ScrubRecord
from metadata.repair.settings import RepairSettings

READ_COST_BYTES: Final = 64 * 1024
"""Bytes that a read counts at least, because a disk needs time to find small runs."""
LOOKUP_COST_BYTES: Final = 4 * 1024
"""Bytes that a look-up without a read counts."""
PAUSE_S_MAX: Final = 60.0
"""Maximum pause between two reads, in seconds."""
FIRST_SCRUB_S_MAX: Final = 3_600
"""Maximum time from the first start of a bookie to its first scrub, in seconds."""

_START: Final = ScrubPosition(0, EntryId(0))


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be checked before this time, in ms since 1970; None without a plan."""

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Begin:
    """A scrub begins, with this record."""

    record: ScrubRecord


@dataclass(frozen=True, slots=True)
class Check:
    """The first stored run at or after this position is checked next."""

    position: ScrubPosition


Step = Rest | Begin | Check


def next_step(record: ScrubRecord, settings: RepairSettings, now_ms: int, first_ms: int) -> Step:
    """Return what comes next. `first_ms` is the time of a bookie's first scrub."""
    if not settings.scrub_bytes_per_s:
        return Rest(None)
    if record.position is not None:
        return Check(record.position)
    due_ms = _due_ms(record, settings, first_ms)
    if due_ms is None or due_ms > now_ms:
        return Rest(due_ms)
    return Begin(
        replace(
            record,
            served_ms=_requested_ms(record, settings),
            began_ms=now_ms,
            position=_START,
            checked_bytes=0,
        )
    )


def passed(
    record: ScrubRecord, ledger_id: LedgerId, next_entry_id: EntryId | None, read_bytes: int
) -> ScrubRecord:
    """Return the record after a check; no next entry means the end of the ledger."""
    if next_entry_id is None:
        after = ScrubPosition(ledger_id + 1, EntryId(0))
    else:
        after = ScrubPosition(ledger_id, next_entry_id)
    return replace(record, position=after, checked_bytes=record.checked_bytes + read_bytes)


def ended(record: ScrubRecord, now_ms: int) -> ScrubRecord:
    """Return the record after the last ledger."""
    return replace(record, position=None, ended_ms=now_ms)


def pause_s(read_bytes: int, settings: RepairSettings) -> float:
    """Return the pause after a check, in seconds."""
    cost = max(read_bytes, READ_COST_BYTES) if read_bytes else LOOKUP_COST_BYTES
    return min(PAUSE_S_MAX, cost / max(1, settings.scrub_bytes_per_s))


def _requested_ms(record: ScrubRecord, settings: RepairSettings) -> int:
    return max(record.requested_ms, settings.scrub_requested_ms)


def _due_ms(record: ScrubRecord, settings: RepairSettings, first_ms: int) -> int | None:
    if _requested_ms(record, settings) > record.served_ms:
        return 0
    if not settings.scrub_every_s:
        return None
    return record.began_ms + settings.scrub_every_s * 1000 if record.began_ms else first_ms

"""Summary of what is left to repair, as the auditor last wrote it, and its bytes. Pure.

Leaves storing it to `status_store.py`, and counting to the auditor.

Invariants: at most BLOCKED_REASONS_MAX reasons are stored, those of the most ledgers first, and at
most AWAY_MAX bookies, those that are away for the longest time first.

Source: protocol rule 9.3.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Final

from metadata.ids import BookieId
from metadata.records import Bytes, Count, Ms, Seconds, codec_of, whole
from metadata.repair.jobs import Urgency

BLOCKED_REASONS_MAX: Final = 20
AWAY_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class UrgencyTotal:
    """Ledgers of one urgency that need a repair, and the bytes to copy for them."""

    urgency: Urgency
    ledgers: Count
    size_bytes: Bytes


@dataclass(frozen=True, slots=True)
class BlockedTotal:
    """Ledgers that cannot be repaired for one reason, or wait for it."""

    reason: str
    ledgers: Count


@dataclass(frozen=True, slots=True)
class AwayBookie:
    """A bookie that is not registered, and does not count as lost yet."""

    bookie_id: BookieId
    since_ms: Ms
    """Time since which the auditor misses it, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class RepairStatus:
    """Summary of the auditor."""

    auditor_id: str
    since_ms: Ms
    """Time at which the auditor was elected, in ms since 1970."""
    audited_ms: Ms | None
    """Time at which the last complete audit ended; None before the first one of this auditor."""
    written_ms: Ms
    """Time of this summary."""
    totals: tuple[UrgencyTotal, ...] = ()
    """What needs a repair, the most urgent first; an urgency without ledgers may be left out."""
    bytes_left: Bytes = 0
    bytes_per_s: Annotated[int, whole(unit="bytes per second")] = 0
    """Bytes copied per second in the last minute, by all workers."""
    eta_s: Seconds | None = None
    """Seconds until nothing is left, at this rate; None when unknown: nothing was copied for a
    minute.
    """
    blocked: tuple[BlockedTotal, ...] = ()
    """Ledgers that cannot be repaired, by the reason."""
    lost_ledgers: Count = 0
    """Ledgers some of whose entries have no good copy."""
    away: tuple[AwayBookie, ...] = ()
    """Bookies that are away, the one that is away for the longest time first."""


STATUS_CODEC: Final = codec_of(RepairStatus)


def shortened(status: RepairStatus) -> RepairStatus:
    """Return a summary with the most important reasons and bookies only."""
    blocked = sorted(status.blocked, key=lambda block: (-block.ledgers, block.reason))
    longest = sorted(status.away, key=lambda bookie: (bookie.since_ms, bookie.bookie_id))
    return replace(
        status, blocked=tuple(blocked[:BLOCKED_REASONS_MAX]), away=tuple(longest[:AWAY_MAX])
    )

"""State of one ledger and of one writer's seat in the simulation.

Leaves changes of the metadata to its transitions, and their times to `appending`.

Invariants: a ledger grows only while its writer runs; a gap names entries that one member of a
fragment should hold but does not; every confirmed entry is below `end()`.

Source: protocol rules 1.1, 4.5, 4.6.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from ledger_client.protocol.ensemble import EnsembleHealth
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)

TOKEN = UpdateToken(bytes(UPDATE_TOKEN_BYTES))
"""Tokens distinguish attempts with unknown outcome; in the model every outcome is known."""


@dataclass(slots=True)
class Gap:
    """Entries that a member of a fragment does not hold; open-ended while it is silent."""

    first: int
    end: int | None
    will_arrive: bool
    """Whether the entries wait in the connections of a paused bookie: no copy is needed after the
    pause."""


@dataclass(slots=True, eq=False)
class Ledger:
    """One ledger: its metadata, its length, and its gaps."""

    metadata: LedgerMetadata
    seat: int
    created_s: float
    write_rate: float
    base: int = 0
    running_since: float | None = None
    closed_s: float | None = None
    is_deleted: bool = False
    gaps: dict[BookieId, list[Gap]] = field(default_factory=dict)

    @property
    def number(self) -> LedgerId:
        """Id of the ledger."""
        return self.metadata.ledger_id

    def end(self, now: float) -> int:
        """Return the number of confirmed entries."""
        if self.running_since is None or now <= self.running_since:
            return self.base
        return self.base + int((now - self.running_since) * self.write_rate)

    def stop(self, now: float) -> None:
        """Stop confirming entries."""
        self.base, self.running_since = self.end(now), None

    def ranges(self, now: float) -> list[tuple[Fragment, int, int]]:
        """List the fragments with their first entry and the end of their entries."""
        fragments = self.metadata.fragments
        ends = [fragment.first_entry_id for fragment in fragments[1:]] + [EntryId(self.end(now))]
        return [(f, f.first_entry_id, end) for f, end in zip(fragments, ends, strict=True)]

    def gaps_within(self, bookie_id: BookieId, first: int, end: int) -> list[tuple[int, int]]:
        """List the parts of [first, end) that a bookie lacks, in order."""
        gaps = []
        for gap in self.gaps.get(bookie_id, ()):
            low, high = max(first, gap.first), end if gap.end is None else min(end, gap.end)
            if low < high:
                gaps.append((low, high))
        return gaps

    def copies(self, now: float, away: Container[BookieId]) -> list[int]:
        """Count entries by number of copies, without the copies of bookies that are `away`."""
        counts = [0] * (self.metadata.quorum.write_quorum + 1)
        for fragment, first, end in self.ranges(now):
            there = [bookie for bookie in fragment.ensemble if bookie not in away]
            missing = [
                gap
                for bookie in (there if self.gaps else ())
                for gap in self.gaps_within(bookie, first, end)
            ]
            if not missing:
                counts[min(len(there), len(counts) - 1)] += max(0, end - first)
                continue
            edges = sorted({first, end, *(edge for gap in missing for edge in gap)})
            for low, high in pairwise(edges):
                lacking = sum(a <= low and high <= b for a, b in missing)
                counts[min(len(there) - lacking, len(counts) - 1)] += high - low
        return counts


class Hold(StrEnum):
    """Reason why a seat cannot append although its members may respond."""

    NONE = "none"
    CHANGING = "a change waits for ZooKeeper"
    RECOVERING = "its writer is dead and recovery has not closed the ledger"
    NO_LEDGER = "no ensemble for the next ledger"


@dataclass(slots=True, eq=False)
class Seat:
    """A place where one ledger after another is written: the current ledger, and its writer."""

    number: int
    client: int
    ledger: Ledger
    health: EnsembleHealth
    hold: Hold = Hold.NONE
    stopped_s: float | None = None
    slow_since_s: float | None = None
    undecided_s: float | None = None
    roll_is_due: bool = False
    outage_begin_s: float = -1.0
    outage_end_s: float = -1.0

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """Members of the fragment that is being written."""
        return self.ledger.metadata.last_fragment.ensemble


def new_ledger(
    number: int, quorum: QuorumSpec, ensemble: tuple[BookieId, ...], client: int
) -> LedgerMetadata:
    """Return the metadata of an empty ledger."""
    return LedgerMetadata(
        LedgerId(number),
        LedgerState.OPEN,
        quorum,
        (Fragment(EntryId(0), ensemble),),
        DigestType.CRC32C,
        0,
        TOKEN,
        TOKEN,
        ClientId(f"client-{client}"),
    )

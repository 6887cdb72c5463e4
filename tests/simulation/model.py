"""Facts of a run: entries that were pushed, confirmed, stored, fenced and deleted.

Leaves judging them to `tests.simulation.checkers`. The facts come from results that callers
received, from the bytes on the wire, and from the metadata store.
"""

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from typing_extensions import override  # `typing` has it from 3.12 on

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from tests.simulation.loop import SimulationLoop

VIOLATIONS_KEPT: Final = 20
TRACE_LINES_MAX: Final = 200_000
_MESSAGE = struct.Struct("<dIB")


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant: the checker that found it, the time, and what it found."""

    checker: str
    at_s: float
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.checker} at {self.at_s:.6f} s: {self.text}"


class Writing(Protocol):
    """Task for a writer's handle."""

    @property
    def last_confirmed(self) -> int:
        """The handle's LAC."""


@dataclass(slots=True)
class LedgerModel:
    """Expected state of one ledger."""

    ledger_id: int
    metadata: LedgerMetadata | None = None
    """Metadata as stored now; None once deleted."""
    payloads: dict[int, bytes] = field(default_factory=dict)
    writer: Writing | None = None
    created_s: float = 0.0
    """True time at which its metadata was first stored."""
    told: int = -1
    """Highest entry whose append succeeded for its caller."""
    judged: int = -1
    """Copies of confirmed entries were counted up to this entry."""
    closed_at: int | None = None
    """Last entry of the first CLOSED metadata that was stored."""
    readers: dict[int, int] = field(default_factory=dict)
    """LAC that each reader's handle last showed."""
    closed_versions: list[tuple[float, LedgerMetadata]] = field(default_factory=list)
    """CLOSED metadata that was stored, in order, and when."""
    on_admitted: Callable[[int, Sequence[bytes]], None] | None = None
    """Called with consecutive payloads and the first id when the writer assigns ids, if several
    callers share the writer.
    """

    @property
    def confirmed(self) -> int:
        """Return the highest entry that the writer confirmed."""
        return self.told if self.writer is None else max(self.told, self.writer.last_confirmed)

    @property
    def kept(self) -> int:
        """Return the highest confirmed entry that was not given up by an unclean recovery."""
        has_given_up = self.metadata is not None and bool(self.metadata.given_up)
        if not has_given_up or self.closed_at is None:
            return self.confirmed
        return min(self.confirmed, self.closed_at)

    @property
    def lost_to(self) -> int:
        """Return the highest confirmed entry that an unclean recovery gave up, or -1."""
        has_given_up = self.metadata is not None and bool(self.metadata.given_up)
        return self.confirmed if has_given_up else -1

    @property
    def visible(self) -> int:
        """Return the highest entry that a reader may see."""
        closed = -1 if self.closed_at is None else self.closed_at
        return max(self.confirmed, closed)

    @property
    def is_closed(self) -> bool:
        """Return whether the stored state is CLOSED."""
        return self.metadata is not None and self.metadata.state is LedgerState.CLOSED

    def set_metadata(self, metadata: LedgerMetadata | None, now_s: float) -> None:
        """Note what is stored now; None once deleted."""
        self.metadata = metadata
        if metadata is not None and self.is_closed:
            self.closed_versions.append((now_s, metadata))

    def may_be_released(self, bookie_id: str, since_s: float) -> bool:
        """Return whether the ledger was CLOSED, and did not name a bookie, at this time or later:
        the bookie may have removed what it stored before (rule 10.1).
        """
        end_s = math.inf
        for stored_s, metadata in reversed(self.closed_versions):
            if end_s > since_s and not metadata.names(BookieId(bookie_id)):
                return True
            end_s = stored_s
        return False


def write_set(metadata: LedgerMetadata, fragment: Fragment, entry_id: int) -> list[str]:
    """Return the bookies of an entry: a second implementation of rules 3.1 and 11.1."""
    quorum = metadata.quorum
    start = entry_id // quorum.stripe_entries
    members = fragment.ensemble
    if quorum.is_in_sync:
        return [str(member) for member in members]
    return [str(members[(start + i) % len(members)]) for i in range(quorum.write_quorum)]


def copies_wanted(metadata: LedgerMetadata, fragment: Fragment, *, full: bool) -> int:
    """Return how many bookies hold an entry once it is acknowledged, or fully replicated."""
    quorum = metadata.quorum
    if quorum.is_in_sync:
        return len(fragment.ensemble)
    return quorum.write_quorum if full else quorum.ack_quorum


def fragment_of(metadata: LedgerMetadata, entry_id: int) -> Fragment:
    """Return the fragment that an entry is in."""
    return next(
        fragment for fragment in reversed(metadata.fragments) if fragment.first_entry_id <= entry_id
    )


def members_in_sync(metadata: LedgerMetadata) -> list[str]:
    """Return the members of the last fragment that every other fragment names: rule 11.2 again."""
    names = [[str(bookie) for bookie in part.ensemble] for part in metadata.fragments]
    return [name for name in names[-1] if all(name in ensemble for ensemble in names)]


class Model:
    """All ledgers of a run, the bookies' acknowledgements, and the history of the run."""

    def __init__(self, loop: SimulationLoop, *, trace: bool = False) -> None:
        self.loop = loop
        self.ledgers: dict[int, LedgerModel] = {}
        self.held: dict[tuple[str, int], dict[int, float]] = {}
        """(Bookie, ledger) -> entry -> time when the bookie first acknowledged it."""
        self.fenced_at_s: dict[tuple[str, int], float] = {}
        """(Bookie, ledger) -> time when the bookie first answered a fence."""
        self.violations: list[Violation] = []
        self.message_count = 0
        self.confirmed_count = 0
        self.error_counts: dict[str, int] = {}
        self.trace: list[str] | None = [] if trace else None
        self._digest = hashlib.blake2b(digest_size=16)

    def ledger(self, ledger_id: int) -> LedgerModel:
        """Return the facts about a ledger."""
        found = self.ledgers.get(ledger_id)
        if found is None:
            found = self.ledgers[ledger_id] = LedgerModel(ledger_id)
        return found

    def copies(self, ledger: LedgerModel, metadata: LedgerMetadata, entry_id: int) -> list[str]:
        """Return the bookies of an entry's write set that acknowledged it."""
        return [
            bookie
            for bookie in write_set(metadata, fragment_of(metadata, entry_id), entry_id)
            if entry_id in self.held.get((bookie, ledger.ledger_id), ())
        ]

    def report(self, checker: str, text: str) -> None:
        """Record a violation."""
        violation = Violation(checker, self.loop.now_s, text)
        self.note("violation", str(violation))
        if len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(violation)

    def note(self, kind: str, text: str) -> None:
        """Add a line to the history."""
        line = f"{self.loop.now_s:.6f} {kind}: {text}"
        self._digest.update(line.encode())
        if self.trace is not None and len(self.trace) < TRACE_LINES_MAX:
            self.trace.append(line)

    def note_bytes(self, number: int, *, from_bookie: bool, data: bytes) -> None:
        """Add a message's bytes to the history's hash."""
        self._digest.update(_MESSAGE.pack(self.loop.now_s, number, from_bookie))
        self._digest.update(data)

    @property
    def trace_hash(self) -> str:
        """Return the hash of the history so far."""
        return self._digest.hexdigest()

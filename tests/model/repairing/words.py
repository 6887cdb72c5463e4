"""Parameters of a scope of repair, and the parts of a world.

Leaves the steps to `worker_steps` and `other_steps`.

A world holds no version of the metadata: each worker counts the changes since it last looked, up to
two, since its production code distinguishes none, one and more.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from ledger_client.protocol.copy import CopyPlan
from metadata.ids import BookieId, UpdateToken
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec
from metadata.repair.lifecycle import Lifecycle
from quire.repair.standing import Standing
from tests.model.words import NAMES
from tests.scenarios.words import ledger

CHANGES_MAX: Final = 2
"""Number up to which a worker counts changes of the metadata."""
TOKEN: Final = UpdateToken(bytes(16))
"""Token of every update: repair compares only the ledger's creation token."""
FAULTS: Final = (
    "partition",
    "crash",
    "death",
    "kill",
    "give up",
    "drain",
    "undrain",
    "remove",
    "delete",
    "change",
    "close",
    "recovery",
)


@dataclass(frozen=True, slots=True)
class RepairScope:
    """Size of a world of repair, and the number of faults of each kind."""

    name: str
    quorum: QuorumSpec
    entries: int = 1
    """Entries of the first fragment; the second one, if there is one, has one entry."""
    is_open: bool = False
    """Whether the ledger is open, with a second fragment that its writer changes and closes."""
    is_empty: bool = False
    """Whether the ledger was closed without an entry."""
    bookies: int = 4
    workers: int = 1
    partitions: int = 0
    """Number of bookies that lose their session with the metadata service, and go on serving."""
    crashes: int = 0
    """Number of bookies that stop, and start again with what they stored."""
    deaths: int = 0
    """Number of bookies that never come back."""
    kills: int = 0
    """Number of workers that are killed."""
    abandons: int = 0
    """Number of copies that are given up without a reason, as after a timeout."""
    drains: int = 0
    undrains: int = 0
    removes: int = 0
    deletes: int = 0
    changes: int = 0
    """Number of ensemble changes of the writer."""
    is_written: bool = False
    """Whether the writer closes the open ledger."""
    is_recovered: bool = False
    """Whether a client recovers the open ledger, and replaces a member of its last fragment."""
    mortals: tuple[int, ...] = (0,)
    """Bookies that may crash, die, be partitioned, or be drained; spares are equal."""
    states_max: int = 2_000_000
    walks: int = 0

    @property
    def budget(self) -> tuple[int, ...]:
        """How often each fault of `FAULTS` may occur."""
        return (
            self.partitions,
            self.crashes,
            self.deaths,
            self.kills,
            self.abandons,
            self.drains,
            self.undrains,
            self.removes,
            self.deletes,
            self.changes,
            int(self.is_written),
            int(self.is_recovered),
        )


class Bookie(NamedTuple):
    """One bookie."""

    held: int
    """Entries that it stores, as a mask."""
    is_up: bool = True
    is_registered: bool = True
    is_dead: bool = False
    known: Lifecycle = Lifecycle.ACTIVE
    """Its stored state, as it last read it."""
    is_releasing: bool = False
    """Whether its collector has decided to remove the ledger; adds wait until it has."""


class Worker(NamedTuple):
    """One worker in the middle of a ledger's repair."""

    standings: tuple[Standing, ...]
    """As they were when the repair began."""
    needs_registered: bool
    """Whether a bookie that is not registered counts as gone (rule 9.6)."""
    phase: str
    """"next", "mark", "copy", "name", "check", "swap", "unmark" or "clean"."""
    plan: CopyPlan | None = None
    changes: int = 0
    """Changes of the metadata since this worker looked at it."""
    copied: int = 0
    """Entries that are stored and read back in this copy, as a mask."""


class Stored(NamedTuple):
    """Stored metadata of the ledger: what can change, and the quorum."""

    quorum: QuorumSpec
    state: LedgerState
    fragments: tuple[Fragment, ...]
    last_entry_id: int | None


class RepairWorld(NamedTuple):
    """State of all parts at one moment."""

    stored: Stored | None
    """None once the ledger is deleted."""
    bookies: tuple[Bookie, ...]
    states: tuple[Lifecycle, ...]
    """Stored states of the bookies."""
    workers: tuple[Worker | None, ...]
    passed: int
    """Draining bookies that the auditor's pass found unnamed, as a mask."""
    proven: int
    """Bookies that an operator's pass found unnamed, as a mask."""
    budget: tuple[int, ...]

    @property
    def ledger(self) -> LedgerMetadata | None:
        """The ledger's metadata."""
        return None if self.stored is None else metadata_of(self.stored)


@cache
def metadata_of(stored: Stored) -> LedgerMetadata:
    """Return stored metadata as the production code reads them."""
    last = -1 if stored.last_entry_id is None else stored.last_entry_id
    return ledger(stored.quorum, stored.fragments, stored.state, last, last + 1)


def stored_as(metadata: LedgerMetadata | None) -> Stored | None:
    """Return metadata as a world holds them."""
    if metadata is None:
        return None
    return Stored(metadata.quorum, metadata.state, metadata.fragments, metadata.last_entry_id)


def number_of(bookie_id: BookieId) -> int:
    """Return the number of a bookie."""
    return NAMES.index(bookie_id)


def mask_of(first: int, last: int) -> int:
    """Return a range of entries as a mask."""
    return (1 << (last + 1)) - (1 << first)

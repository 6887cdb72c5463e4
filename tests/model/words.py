"""Messages, events and effects that the model's parts exchange, and the parameters of a scope.

Leaves their meaning to `protocols`, `bookies` and `steps`.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger_client.protocol.append_options import AppendOptions
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_metadata import QuorumSpec

NAMES: Final = tuple(BookieId(name) for name in "abcdef")
PLAIN: Final = AppendOptions()
WRITER: Final = 0
"""Number of the writer among the actors; the recoverers are 1, 2, ..."""


class ViolationError(AssertionError):
    """A rule of the protocol is broken."""


class Request(NamedTuple):
    """Request of an actor to a bookie. `is_awaited`: its sender still waits for the answer."""

    kind: str  # "add", "fence", "read", "back"
    is_awaited: bool
    sender: int
    bookie: int
    first: int
    last: int
    lac: int


class Answer(NamedTuple):
    """Answer of a bookie.

    `status` is a `Status`; `value` is the LAC (fence), or the first entry that is not returned
    (read).
    """

    request: Request
    status: int
    value: int
    is_fenced: bool


class Failure(NamedTuple):
    """Notification of the sender that no answer will come."""

    request: Request
    is_failure: bool = True


class Update(NamedTuple):
    """A compare-and-set of unknown outcome that may yet apply (rule 1.3)."""

    metadata: int
    expected: int


class Seen(NamedTuple):
    """Metadata stored by the copier, on its way to the writer (`MetadataSeen`)."""

    metadata: int
    version: int
    is_seen: bool = True


Message = Request | Answer | Failure | Update | Seen


class Operation(NamedTuple):
    """Request of an actor to the metadata store.

    It is a change (`history`: the answers so far), or, with `metadata` -1, a read.
    """

    metadata: int
    expected: int
    history: tuple[tuple[int, ...], ...] = ()
    reply: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Size of a world, and the number of faults of each kind."""

    name: str
    quorum: QuorumSpec
    entries: int = 2
    spares: int = 1
    recoverers: int = 0
    failures: int = 0
    """Number of bookies that the writer treats as failed, really or not (5.7)."""
    suspects: tuple[int, ...] = (0, 1)
    """Bookies that may fail; with equal positions, one stands for all."""
    kinds: tuple[str, ...] = ("gone",)
    """"gone", "suspected", and "lagging", which needs a member that lacks the oldest entry."""
    silences: int = 0
    """Number of recoverers' requests that are abandoned; the bookie may still receive them."""
    unknowns: int = 0
    """Number of compare-and-sets whose outcome the store does not report."""
    crashes: int = 0
    """Number of bookies that die for good; a `slow` bookie 0 restarts from its synced data."""
    damages: int = 0
    """Number of bookies that restart with damage in the log: they fence without a recovery (2.4).
    """
    old_copies: int = 0
    """Number of bookies that return on a copy of their directories from before the ledger, and so
    in limbo (2.4). They held no entry: what a loss of entries needs is not in a world.
    """
    mortals: tuple[int, ...] = (0,)
    """Bookies that may die, be damaged, or return on an old copy."""
    is_slow: bool = False
    """Whether bookie 0 syncs in a separate step."""
    repairs: int = 0
    joins: int = 0
    """0 or 1: the last spare is registered only later."""
    returns: int = 0
    """How often a bookie that the writer parked answers again."""
    closes: bool = True
    """Whether the writer's caller may close, at any moment."""
    keeps_lacs: bool = False
    """Whether the LACs of stored batches are distinguished."""
    waits: bool = True
    """Whether a bookie's answer to a recoverer travels in a separate step."""
    options: AppendOptions = PLAIN
    is_mirrored: bool = False
    """Whether worlds that differ only in the names of b and c are one: no fault is for one of them.
    """
    states_max: int = 1_500_000
    walks: int = 0
    """Number of random ways to the end if `states_max` cut the exploration."""

    @property
    def bookies(self) -> int:
        """Number of bookies."""
        return self.quorum.ensemble_size + self.spares


def size_of(entry_id: int) -> int:
    """Return the bytes of an entry, a different number for each."""
    return 1 << entry_id


def length_of(stop: int) -> int:
    """Return the total bytes of all entries before this one."""
    return sum(map(size_of, range(stop)))


def token_of(actor: int, purpose: int, version: int) -> UpdateToken:
    """Return the token of an update.

    An actor requests one with one purpose at most once on top of a version.
    """
    return UpdateToken(bytes([actor, purpose, version]) + bytes(13))


def entry(number: int) -> EntryId:
    """Return a number as an entry id."""
    return EntryId(number)

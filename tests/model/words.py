"""Names what the model's parts tell each other: messages, events, effects, and what one scope is.

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
"""The writer's number among the actors; the recoverers are 1, 2, ..."""


class ViolationError(AssertionError):
    """A rule of the protocol does not hold."""


class Request(NamedTuple):
    """What an actor asks of a bookie. `is_awaited`: its sender still waits for the answer."""

    kind: str  # "add", "fence", "read", "back"
    is_awaited: bool
    sender: int
    bookie: int
    first: int
    last: int
    lac: int


class Answer(NamedTuple):
    """What a bookie answers: `status` a `Status`, `value` the LAC (fence), or the first entry that
    is not returned (read).
    """

    request: Request
    status: int
    value: int
    is_fenced: bool


class Failure(NamedTuple):
    """The sender learns that no answer will come."""

    request: Request
    is_failure: bool = True


class Update(NamedTuple):
    """A compare-and-set of unknown outcome that may yet apply (rule 1.3)."""

    metadata: int
    expected: int


class Seen(NamedTuple):
    """What the copier stored, on its way to the writer (`MetadataSeen`)."""

    metadata: int
    version: int
    is_seen: bool = True


Message = Request | Answer | Failure | Update | Seen


class Operation(NamedTuple):
    """What an actor asks of the metadata store: a change (`history`: the answers so far), or, with
    `metadata` -1, to read.
    """

    metadata: int
    expected: int
    history: tuple[tuple[int, ...], ...] = ()
    reply: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """How large one world is, and what may go wrong in it, how often."""

    name: str
    quorum: QuorumSpec
    entries: int = 2
    spares: int = 1
    recoverers: int = 0
    failures: int = 0
    """Bookies that the writer takes for failed, rightly or not (5.7)."""
    suspects: tuple[int, ...] = (0, 1)
    """Which they may be; with equal positions, one can stand for all."""
    kinds: tuple[str, ...] = ("gone",)
    """"gone", "suspected", and "lagging", which only a member is that lacks the oldest entry."""
    silences: int = 0
    """Requests of recoverers that are given up; the bookie may get them all the same."""
    unknowns: int = 0
    """Compare-and-sets whose outcome the store does not tell."""
    crashes: int = 0
    """How many bookies die for good; when bookie 0 is `slow`, it restarts from what was synced."""
    mortals: tuple[int, ...] = (0,)
    """Which they may be."""
    is_slow: bool = False
    """Bookie 0 syncs in a step of its own."""
    repairs: int = 0
    joins: int = 0
    """0 or 1: the last spare is registered only later."""
    returns: int = 0
    """How often a bookie that the writer parked answers again."""
    closes: bool = True
    """The writer's caller may close, at any moment."""
    keeps_lacs: bool = False
    """The stored batches' LACs are told apart."""
    waits: bool = True
    """A bookie's answer to a recoverer travels in a step of its own."""
    options: AppendOptions = PLAIN
    is_mirrored: bool = False
    """Worlds that differ in the names of b and c alone are one: no fault is for one of them."""
    states_max: int = 1_500_000
    walks: int = 0
    """How many ways to the end are drawn at random where `states_max` cut the exploration."""

    @property
    def bookies(self) -> int:
        """How many bookies there are."""
        return self.quorum.ensemble_size + self.spares


def size_of(entry_id: int) -> int:
    """Return the bytes of an entry: another number for each."""
    return 1 << entry_id


def length_of(stop: int) -> int:
    """Return the bytes of all entries before one."""
    return sum(map(size_of, range(stop)))


def token_of(actor: int, purpose: int, version: int) -> UpdateToken:
    """Return the token of an update: an actor asks for one with one purpose at most once on top of
    a version.
    """
    return UpdateToken(bytes([actor, purpose, version]) + bytes(13))


def entry(number: int) -> EntryId:
    """Return a number as an entry id."""
    return EntryId(number)

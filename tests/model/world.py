"""One small world as a tuple of numbers, and a draft of the next one.

Leaves the possible steps to `steps`, and the rules to `checks`. Protocol states, bookies, messages,
metadata and operations are numbered by pools, so that worlds are hashed and compared fast.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ids import NO_ENTRY
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.model.bookies import NOT_HELD, Bookies, BookieState
from tests.model.freezing import MetadataPool, Pool
from tests.model.in_sync_rules import check_confirmed, check_members
from tests.model.protocols import DONE, FIRST, Effect, Event, Recoverers, Told, Writers
from tests.model.store_calls import StoreCalls
from tests.model.words import (
    NAMES,
    WRITER,
    Answer,
    Failure,
    Message,
    Operation,
    Request,
    Scope,
    Seen,
    Update,
    ViolationError,
    length_of,
)

if TYPE_CHECKING:
    from ledger_client.protocol.copy import CopyPlan

READ: Final = Operation(-1, 0)


class World(NamedTuple):
    """State of all parts at one moment."""

    metadata: int
    version: int
    actors: tuple[int, ...]
    """The writer's state, and each recoverer's."""
    bookies: tuple[int, ...]
    messages: tuple[int, ...]
    """Ascending."""
    operations: tuple[int, ...]
    """Request of each actor to the metadata store; 0 for none."""
    sent: tuple[int, ...]
    """For each appended entry, the LAC that was sent with it."""
    acknowledged: int
    """Number of entries that are confirmed to the caller."""
    budget: tuple[int, ...]
    """How often each kind of fault may still occur: see `Draft.spend`."""
    lost: int
    """Bookies that are dead for good, as a mask."""
    is_closing: bool
    copy: int = 0
    """Copy in progress to a member that catches up; 0 for none."""
    damaged: int = 0
    """Bookies that fence without a recovery, as a mask."""


FAULTS: Final = (
    "failure",
    "silence",
    "unknown",
    "crash",
    "repair",
    "join",
    "return",
    "damage",
    "old copy",
)
JOIN: Final = FAULTS.index("join")


class FirstParts(NamedTuple):
    """Production objects at the start."""

    metadata: LedgerMetadata
    writer: AppendProtocol
    recoverer: RecoveryProtocol


class Pools:
    """Values behind the numbers of one scope's worlds, and the steps of its parts."""

    def __init__(self, scope: Scope, first: FirstParts) -> None:
        self.scope = scope
        self.metadata = MetadataPool()
        self.messages: Pool[Message] = Pool()
        self.operations: Pool[Operation | None] = Pool()
        self.operations.number(None)
        self.copies: Pool[CopyPlan | None] = Pool()
        self.copies.number(None)
        self.bookies = Bookies(scope.entries, keeps_lacs=scope.keeps_lacs)
        self.calls = StoreCalls(self.metadata)
        self.writers = Writers(first.writer, self.metadata)
        self.recoverers = Recoverers(first.recoverer, self.metadata)
        budget = (
            scope.failures,
            scope.silences,
            scope.unknowns,
            scope.crashes,
            scope.repairs,
            scope.joins,
            scope.returns,
            scope.damages,
            scope.old_copies,
        )
        actors = 1 + scope.recoverers
        self._waiting: list[int] = []
        self.start = World(
            metadata=self.metadata.number(first.metadata),
            version=1,
            actors=(FIRST,) * actors,
            bookies=(self.bookies.empty,) * scope.bookies,
            messages=(),
            operations=(0,) * actors,
            sent=(),
            acknowledged=0,
            budget=budget,
            lost=0,
            is_closing=False,
        )

    def who_waits(self, number: int) -> int:
        """Return the actor that needs a message, or -1."""
        waiting = self._waiting
        while number >= len(waiting):
            message = self.messages.values[len(waiting)]
            match message:
                case Request():
                    waiting.append(message.sender if message.is_awaited else -1)
                case Answer(request) | Failure(request):
                    waiting.append(request.sender)
                case Update():
                    waiting.append(-1)
                case Seen():
                    waiting.append(WRITER)
        return waiting[number]


class Draft:
    """The next world, while a step is taken."""

    __slots__ = (
        "_pools",
        "acknowledged",
        "actors",
        "bookies",
        "budget",
        "confirmed",
        "copy",
        "damaged",
        "is_closing",
        "lost",
        "messages",
        "metadata",
        "operations",
        "sent",
        "version",
    )

    def __init__(self, world: World, pools: Pools) -> None:
        self._pools = pools
        (
            self.metadata,
            self.version,
            actors,
            bookies,
            messages,
            operations,
            self.sent,
            self.acknowledged,
            self.budget,
            self.lost,
            self.is_closing,
            self.copy,
            self.damaged,
        ) = world
        self.actors = list(actors)
        self.bookies = list(bookies)
        self.messages = list(messages)
        self.operations = list(operations)

    def freeze(self) -> World:
        """Return the world, without messages that can have no effect any more."""
        self._forget()
        return World(
            self.metadata,
            self.version,
            tuple(self.actors),
            tuple(self.bookies),
            tuple(sorted(self.messages)),
            tuple(self.operations),
            self.sent,
            self.acknowledged,
            self.budget,
            self.lost,
            self.is_closing,
            self.copy,
            self.damaged,
        )

    def spend(self, fault: str) -> None:
        """Remove one fault from the budget."""
        at = FAULTS.index(fault)
        left = self.budget[at] - 1
        assert left >= 0
        self.budget = (*self.budget[:at], left, *self.budget[at + 1 :])

    def post(self, message: Message) -> None:
        """Add a message in flight."""
        self.messages.append(self._pools.messages.number(message))

    def drop(self, at: int) -> None:
        """Remove a message."""
        del self.messages[at]

    # -- actors ------------------------------------------------------------------------------------

    def tell(self, actor: int, event: Event) -> None:
        """Let an actor handle an event, and apply its effects."""
        state = self.actors[actor]
        if state == DONE:
            return
        pools = self._pools
        seen = pools.scope.bookies - self.budget[JOIN]
        if actor == WRITER:
            state, effects = pools.writers.handle(WRITER, state, event, seen)
            self._check_false_fences(state)
        else:
            state, effects = pools.recoverers.handle(actor, state, event, seen)
        self.actors[actor] = state
        for effect in effects:
            self._perform(actor, effect)
        if state == DONE and self.operations[actor]:
            self.operations[actor] = 0

    def _perform(self, actor: int, effect: Effect) -> None:
        numbers = effect.numbers
        match effect.name:
            case "add":
                bookie, first = numbers
                request = Request("add", True, actor, bookie, first, first, self.sent[first])
                self.post(request)
            case "confirm":
                self._confirm(*numbers)
            case "store":
                self._ask_store(actor, Operation(numbers[0], numbers[1]))
            case "read":
                self._ask_store(actor, READ)
            case "fence":
                self.post(Request("fence", True, actor, numbers[0], 0, 0, NO_ENTRY))
            case "range":
                bookie, first, _last = numbers
                last = self._pools.scope.entries  # one more than there are: the rest is missing
                self.post(Request("read", True, actor, bookie, first, last, NO_ENTRY))
            case "back":
                bookie, first, last, lac = numbers
                self.post(Request("back", True, actor, bookie, first, last, lac))
            case "finish":
                self._finish(numbers[0])
            case "failed":
                if effect.note in ("FragmentsChanged", "OtherBytesStored", "EntryConflictError"):
                    raise ViolationError(f"it ends with {effect.note}")
                if effect.note == "LedgerFencedError" and self.stored.state is LedgerState.OPEN:
                    raise ViolationError("the writer says that the open ledger is fenced")
                self.is_closing = self.is_closing or actor == WRITER
            case _:
                raise AssertionError(effect)

    def _check_false_fences(self, state: int) -> None:
        """Check that the writer does not take a fence of a recovery for a mistake (4.7)."""
        writer = self._pools.writers.states[state]
        for name in () if writer is None else writer.false_fences:
            if not self.damaged >> NAMES.index(name) & 1:
                raise ViolationError(f"the fence of a recovery at {name} counts as a mistake")

    def _ask_store(self, actor: int, operation: Operation) -> None:
        if self.operations[actor]:
            raise ViolationError("two operations of one actor on the metadata at once")
        self.operations[actor] = self._pools.operations.number(operation)

    def _confirm(self, lac: int, length: int) -> None:
        if lac < self.acknowledged or length != length_of(lac + 1):
            raise ViolationError(f"confirmed {lac} with length {length}")
        if lac >= len(self.sent):
            raise ViolationError(f"confirmed {lac}, which was never appended")
        check_confirmed(self.stored, self._pools.writers.states[self.actors[WRITER]])
        self.acknowledged = lac + 1

    def _finish(self, metadata: int) -> None:
        ours, stored = self._pools.metadata.values[metadata], self.stored
        if (ours.last_entry_id, ours.length) != (stored.last_entry_id, stored.length):
            raise ViolationError("an actor finished with another end than the one that is stored")

    # -- the register ------------------------------------------------------------------------------

    @property
    def stored(self) -> LedgerMetadata:
        """The metadata as stored."""
        return self._pools.metadata.values[self.metadata]

    def compare_and_set(self, metadata: int, expected: int) -> bool:
        """Store if the version is the expected one; return whether it was."""
        if expected != self.version:
            return False
        self._check_change(self._pools.metadata.values[metadata])
        self.metadata = metadata
        self.version += 1
        return True

    def _check_change(self, changed: LedgerMetadata) -> None:
        """Check that only the last fragment changes, from its start on, and nothing once closed
        (1.5).
        """
        before = self.stored
        if before.last_entry_id is not None:
            raise ViolationError("a closed ledger was changed")
        firsts = [fragment.first_entry_id for fragment in changed.fragments]
        if firsts != sorted(dict.fromkeys(firsts)):
            raise ViolationError(f"fragments begin at {firsts}")
        kept = before.fragments[:-1]
        if changed.fragments[: len(kept)] != kept:
            raise ViolationError("an older fragment was changed")
        check_members(before, changed)

    def told_stored(self, actor: int) -> None:
        """Let a recoverer read the metadata."""
        self.tell(actor, Told("read", (self.metadata, self.version)))

    # -- messages without an effect ----------------------------------------------------------------

    def _forget(self) -> None:
        pools, actors, kept = self._pools, self.actors, []
        for number in self.messages:
            waiting = pools.who_waits(number)
            if waiting >= 0 and actors[waiting] != DONE:
                kept.append(number)
                continue
            message = pools.messages.values[number]
            if isinstance(message, Update):
                if message.expected == self.version:
                    kept.append(number)
            elif isinstance(message, Request):
                bookie = pools.bookies.states[self.bookies[message.bookie]]
                if self.lost >> message.bookie & 1 or _is_idle(message, bookie):
                    continue
                late = message._replace(is_awaited=False)
                kept.append(pools.messages.number(late) if waiting >= 0 else number)
        self.messages = kept


def _is_idle(request: Request, bookie: BookieState) -> bool:
    """Return whether a request without a waiting sender changes nothing at its bookie."""
    if request.kind in ("fence", "read"):
        return bookie.is_fence_durable
    if request.kind == "add" and bookie.is_fence_durable:
        return True
    held = all(bookie.held[number] != NOT_HELD for number in range(request.first, request.last + 1))
    return held and bookie.lac >= request.lac


def show_world(world: World, pools: Pools) -> str:
    """Format a world as one line, for transcripts."""
    stored = pools.metadata.values[world.metadata]
    parts = [
        f"{fragment.first_entry_id}:{''.join(fragment.ensemble)}" for fragment in stored.fragments
    ]
    end = "" if stored.last_entry_id is None else f" at {stored.last_entry_id}"
    held = []
    for number in world.bookies:
        bookie = pools.bookies.states[number]
        entries = "".join(str(e) for e, lac in enumerate(bookie.held) if lac != NOT_HELD)
        held.append(f"{entries or '-'}{'F' * bookie.fenced}{'?' * len(bookie.queue)}")
    ledger = f"{stored.state}{end} {' '.join(parts)}"
    return f"{ledger} | {' '.join(held)} | acknowledged {world.acknowledged}"

"""Steps of the production protocols, one event at a time, with a memory of their results.

Leaves messages, bookies and metadata to `steps`. Since a protocol is pure, its state after an event
is computed once for each pair of state and event, on a copy of the object, and looked up later. An
exploration of millions of worlds calls each `handle` some thousand times.

The decisions of a shell that do not depend on the world are here: the answers of the placement, the
close after a writer's failure, and the token of an update.
"""

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from bookie.wire.messages import Status
from ledger_client.protocol import append_events as a
from ledger_client.protocol import recovery_events as r
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ids import BookieId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.server.overriding import override
from tests.model.freezing import MetadataPool, clone, freeze
from tests.model.words import (
    NAMES,
    WRITER,
    Answer,
    Failure,
    Request,
    ViolationError,
    entry,
    length_of,
    size_of,
    token_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

DONE = 0
"""Number of every state in which an actor has ended."""
FIRST = 1
"""Number of the state at the start."""
ProtocolT = TypeVar("ProtocolT", AppendProtocol, RecoveryProtocol)


class Told(NamedTuple):
    """Key of an event that is not a message: its name, and its numbers."""

    name: str
    numbers: tuple[int, ...] = ()


class Effect(NamedTuple):
    """Effect on the world: an action's name, and its numbers."""

    name: str
    numbers: tuple[int, ...] = ()
    note: str = ""


Event = Answer | Failure | Told
Outcome = tuple[int, tuple[Effect, ...]]


class Protocols(Generic[ProtocolT]):
    """All states of one kind of protocol that occur, and the steps between them."""

    def __init__(self, first: ProtocolT, pool: MetadataPool) -> None:
        self.states: list[ProtocolT | None] = [None]
        self._numbers: dict[Hashable, int] = {}
        self._pool = pool
        self._known: dict[tuple[int, int, Event, int], Outcome] = {}
        self._seen = 0
        self.watcher: Callable[[int, int, Event, int], None] | None = None
        """Called for every event that is handled for the first time in a state."""
        self.origins: dict[int, tuple[int, int, Event, int]] = {}
        """For each state: the first actor, state, event and number of seen bookies that led to it.
        """
        self._number(first)

    def handle(self, actor: int, state: int, event: Event, seen: int) -> Outcome:
        """Return the state after an event, and its effects; `seen` is the number of visible
        bookies.
        """
        key = actor, state, event, seen
        found = self._known.get(key)
        if found is None:
            self._seen = seen
            found = self._known[key] = self._advance(actor, state, event)
            self.origins.setdefault(found[0], key)
            if self.watcher is not None:
                self.watcher(*key)
        return found

    @property
    def count(self) -> int:
        """Number of distinct states that occurred."""
        return len(self.states)

    def _advance(self, actor: int, state: int, event: Event) -> Outcome:
        copied = cast("ProtocolT", clone(self.states[state], {}))
        effects = self._play(actor, copied, event)
        return self._number(copied), tuple(effects)

    def _number(self, protocol: ProtocolT) -> int:
        if self._has_ended(protocol):
            return DONE
        key = freeze(protocol, self._pool)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.states)
            self.states.append(protocol)
        return found

    def _metadata(self, numbers: tuple[int, ...]) -> tuple[LedgerMetadata, Version]:
        return self._pool.values[numbers[0]], Version(numbers[1])

    def _spares(
        self, ensemble: tuple[BookieId, ...], positions: tuple[int, ...], avoided: list[BookieId]
    ) -> dict[int, BookieId]:
        """Choose as the placement does if all racks are equal: any other bookies, as many as there
        are.
        """
        names = NAMES[: self._seen]
        spares = [name for name in names if name not in ensemble and name not in avoided]
        return dict(zip(positions, spares, strict=False))

    def _has_ended(self, protocol: ProtocolT) -> bool:
        raise NotImplementedError

    def _play(self, actor: int, protocol: ProtocolT, event: Event) -> list[Effect]:
        raise NotImplementedError


class Writers(Protocols[AppendProtocol]):
    """States of the writer."""

    @override
    def _has_ended(self, protocol: AppendProtocol) -> bool:
        return protocol.has_ended

    @override
    def _play(self, actor: int, protocol: AppendProtocol, event: Event) -> list[Effect]:
        effects: list[Effect] = []
        events = deque([self._event_of(event)])
        while events:
            for action in protocol.handle(events.popleft()):
                self._perform(protocol, action, events, effects)
        return effects

    def _event_of(self, event: Event) -> a.AppendEvent:
        if isinstance(event, Answer):
            name, first = NAMES[event.request.bookie], entry(event.request.first)
            if event.status == Status.OK:
                return a.BatchStored(first, name)
            return a.StoreRefused(first, name, Status(event.status))
        if isinstance(event, Failure):
            return a.BookieFailed(NAMES[event.request.bookie], a.FailureKind.GONE, "lost")
        numbers = event.numbers
        match event.name:
            case "append":
                return a.BatchAppended(entry(numbers[0]), 1, size_of(numbers[0]))
            case "gone" | "suspected" | "lagging" as kind:
                return a.BookieFailed(NAMES[numbers[0]], a.FailureKind(kind), "drawn")
            case "ready":
                return a.MemberReady(NAMES[numbers[0]], token_of(WRITER, 4, numbers[1]))
            case "joined":
                return a.SpareJoined()
            case "returned":
                return a.BookieReturned(NAMES[numbers[0]])
            case "close":
                return a.CloseRequested(token_of(WRITER, 1, numbers[0]))
            case _:
                return self._decision(event)

    def _decision(self, event: Told) -> a.AppendEvent:
        if event.name == "stored":
            return a.MetadataStored(*self._metadata(event.numbers))
        if event.name == "seen":
            return a.MetadataSeen(*self._metadata(event.numbers))
        assert event.name == "conflicted"
        return a.MetadataConflicted(*self._metadata(event.numbers))

    def _perform(
        self,
        protocol: AppendProtocol,
        action: a.AppendAction,
        events: deque[a.AppendEvent],
        effects: list[Effect],
    ) -> None:
        version = protocol._version
        match action:
            case a.SendBatch(first, names):
                effects += [Effect("add", (NAMES.index(name), first)) for name in names]
            case a.Confirm(lac, length):
                effects.append(Effect("confirm", (lac, length)))
            case a.ChooseReplacements(ensemble, positions, excluded):
                chosen = self._spares(ensemble, positions, list(excluded))
                if chosen:
                    token = token_of(WRITER, 2, version)
                    events.append(a.ReplacementsChosen(chosen, token))
                else:
                    events.append(a.ReplacementsMissing(len(positions), 0, {}))
            case a.ProposeMembers():
                events.append(a.MembersProposed(token_of(WRITER, 2, version)))
            case a.StoreMetadata(metadata, expected):
                effects.append(Effect("store", (self._pool.number(metadata), expected)))
            case a.ReadMetadata():
                effects.append(Effect("read"))
            case a.FailWriter(error):
                effects.append(Effect("failed", note=type(error).__name__))
                if not protocol.has_ended:
                    events.append(a.CloseRequested(token_of(WRITER, 1, version)))
            case a.Closed(metadata):
                effects.append(Effect("finish", (self._pool.number(metadata),)))
            case a.MembersChanged() | a.Settle() | a.RecordStretch() | a.DropChange():
                pass


class Recoverers(Protocols[RecoveryProtocol]):
    """States of recoverers."""

    @override
    def _has_ended(self, protocol: RecoveryProtocol) -> bool:
        return protocol._stage.name == "DONE"

    @override
    def _play(self, actor: int, protocol: RecoveryProtocol, event: Event) -> list[Effect]:
        effects: list[Effect] = []
        events = deque([self._event_of(event)])
        while events:
            for action in protocol.handle(events.popleft()):
                self._perform(actor, action, events, effects)
        return effects

    def _event_of(self, event: Event) -> r.RecoveryEvent:
        if isinstance(event, Told):
            if event.name == "stored":
                return r.MetadataStored(*self._metadata(event.numbers))
            return r.MetadataRead(*self._metadata(event.numbers))
        request = event.request
        name, first = NAMES[request.bookie], entry(request.first)
        if isinstance(event, Failure):
            match request.kind:
                case "fence":
                    return r.FenceFailed(name, "lost")
                case "read":
                    return r.RangeFailed(name, first, "lost")
                case _:
                    return r.SpanRefused(name, first, None, "lost")
        status = Status(event.status)
        match request.kind:
            case "fence":
                return r.FenceAnswered(name, status, entry(event.value), event.is_fenced)
            case "read":
                lengths = tuple(size_of(number) for number in range(first, event.value))
                run = r.FoundRun(first, lengths, length_of(first))
                runs = (run,) if lengths else ()
                return r.RangeAnswered(name, first, runs, entry(event.value), status)
            case _ if status is Status.OK:
                return r.SpanStored(name, first)
            case _:
                return r.SpanRefused(name, first, status, "refused")

    def _perform(
        self,
        actor: int,
        action: r.RecoveryAction,
        events: deque[r.RecoveryEvent],
        effects: list[Effect],
    ) -> None:
        match action:
            case r.Finish(metadata, _):
                effects.append(Effect("finish", (self._pool.number(metadata),)))
            case r.Fail(failure):
                effects.append(Effect("failed", note=type(failure).__name__))
            case r.StoreInRecovery() | r.StoreClosed():
                effects.append(self._store(actor, action))
            case r.ReadMetadata():
                effects.append(Effect("read"))
            case r.Fence(name):
                effects.append(Effect("fence", (NAMES.index(name),)))
            case r.ReadRange(name, first, last):
                effects.append(Effect("range", (NAMES.index(name), first, last)))
            case r.FindLength(entry_id):
                events.append(r.LengthFound(length_of(entry_id)))
            case r.WriteBack(name, span, lac):
                if span.length_before != length_of(span.first_entry_id):
                    raise ViolationError(f"the length before {span} is wrong")
                first, stop = span.first_entry_id, span.next_entry_id
                numbers = (NAMES.index(name), first, stop - 1, lac)
                effects.append(Effect("back", numbers))
            case r.ChooseReplacements():
                events.append(self._choose(action))
            case r.ReleaseEntries():
                pass

    def _store(self, actor: int, action: r.StoreInRecovery | r.StoreClosed) -> Effect:
        on, version = action.on, action.version
        if isinstance(action, r.StoreInRecovery):
            changed = on.with_recovery_begun(token_of(actor, 1, version))
        else:
            end = action.last_entry_id, action.length
            changed = on.with_recovered(action.recovered, *end, token_of(actor, 2, version))
        return Effect("store", (self._pool.number(changed), version))

    def _choose(self, action: r.ChooseReplacements) -> r.RecoveryEvent:
        chosen = self._spares(action.ensemble, action.positions, list(action.failed))
        if chosen:
            return r.ReplacementsChosen(chosen)
        return r.ReplacementsMissing(len(action.positions), 0, {})


def show_request(request: Request) -> str:
    """Format a request for a transcript."""
    who = "writer" if request.sender == WRITER else f"recoverer {request.sender}"
    what = "" if request.kind == "fence" else f" {request.first}"
    if request.kind == "back" and request.last != request.first:
        what += f"..{request.last}"
    if request.kind in ("add", "back"):
        what += f" (LAC {request.lac})"
    late = "" if request.is_awaited else ", no longer awaited"
    return f"{request.kind}{what} of the {who}{late}"

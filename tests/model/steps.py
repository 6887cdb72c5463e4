"""Possible next steps of a world, and the worlds after them.

Leaves the decisions to the production objects behind `Pools`, and the order of exploration to
`search`. Requests and answers are unordered. An abandoned request of a recoverer may still reach
its bookie; so may the adds of a bookie that the writer treats as failed.

Symmetry: recoverer n + 1 starts only after recoverer n. Only bookies of `Scope.mortals` crash, and
only those of `Scope.suspects` are treated as failed, since with WQ = E all positions are equal.
"""

from collections.abc import Iterator
from typing import Final

from ledger_client.protocol.append import AppendProtocol
from metadata.ledgers.ledger_metadata import LedgerState
from tests.model.bookies import NOT_HELD
from tests.model.in_sync_steps import MemberSteps
from tests.model.labels import Label
from tests.model.protocols import DONE, FIRST, Told
from tests.model.store_calls import CONFLICT, GET, LOST, OK, SET, UNKNOWN, VALUE
from tests.model.words import (
    NAMES,
    WRITER,
    Answer,
    Failure,
    Message,
    Operation,
    Request,
    Seen,
    Update,
    entry,
    token_of,
)
from tests.model.world import FAULTS, Draft, Pools, World

DAMAGE: Final = FAULTS.index("damage")
OLD_COPY: Final = FAULTS.index("old copy")
WHO: Final = ("the writer", "recoverer 1", "recoverer 2", "recoverer 3")


class Steps:
    """Steps of one scope's worlds."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._scope = pools.scope
        self.label = Label("the start")
        """Current step, for the report of a violation."""
        self._members = MemberSteps(self, pools) if pools.scope.quorum.is_in_sync else None

    def after(self, world: World) -> Iterator[tuple[Label, World]]:
        """Take every possible step, one after the other."""
        if all(state == DONE for state in world.actors):
            return
        yield from self._deliveries(world)
        yield from self._of_bookies(world)
        for actor, operation in enumerate(world.operations):
            if operation:
                yield from self._of_store(world, actor)
        if world.actors[WRITER] != DONE:
            yield from self._of_writer(world)
            if self._members is not None:
                yield from self._members.after(world)
        yield from self._of_recoverers(world)
        if world.budget[DAMAGE]:
            yield from self._damage(world)
        if world.budget[OLD_COPY]:
            yield from self._return_on_old_copies(world)
        if world.budget[4] and len(self._pools.metadata.values[world.metadata].fragments) > 1:
            yield from self._repair(world)

    def begin(
        self, world: World, text: str, *shown: object, fault: str = "", is_free: bool = False
    ) -> Draft:
        """Start a step with this name."""
        self.label = Label(text, shown, is_free or bool(fault))
        draft = Draft(world, self._pools)
        if fault:
            draft.spend(fault)
        return draft

    # -- messages ----------------------------------------------------------------------------------

    def _deliveries(self, world: World) -> Iterator[tuple[Label, World]]:
        last = -1
        for at, number in enumerate(world.messages):
            if number != last:
                last = number
                draft = self._deliver(world, at, self._pools.messages.values[number])
                yield self.label, draft.freeze()

    def _deliver(self, world: World, at: int, message: Message) -> Draft:
        match message:
            case Request():
                draft = self.begin(world, "{} reaches {}", message, NAMES[message.bookie])
                draft.drop(at)
                self.ask(draft, message)
            case Answer(request, status):
                where = NAMES[request.bookie]
                draft = self.begin(world, "answer {} to {} at {}", status, request, where)
                draft.drop(at)
                draft.tell(request.sender, message)
            case Failure(request):
                where = NAMES[request.bookie]
                draft = self.begin(world, "no answer to {} at {}", request, where)
                draft.drop(at)
                self._fail(draft, request)
            case Seen():
                draft = self.begin(world, "the writer sees what the copier stored")
                draft.drop(at)
                draft.tell(WRITER, Told("seen", (message.metadata, message.version)))
            case _:
                draft = self.begin(world, "an update of unknown outcome applies")
                draft.drop(at)
                draft.compare_and_set(message.metadata, message.expected)
        return draft

    def ask(self, draft: Draft, request: Request) -> None:
        """Deliver a request to its bookie."""
        if draft.lost >> request.bookie & 1:
            if request.is_awaited:
                self._fail(draft, request)
            return
        is_slow = self._scope.is_slow and request.bookie == 0
        bookies = self._pools.bookies
        number, answers = bookies.ask(draft.bookies[request.bookie], request, is_slow=is_slow)
        draft.bookies[request.bookie] = number
        self._answer(draft, answers)

    def _answer(self, draft: Draft, answers: tuple[Answer, ...]) -> None:
        for answer in answers:
            request = answer.request
            if not request.is_awaited or draft.actors[request.sender] == DONE:
                continue
            if request.sender == WRITER or self._scope.waits:
                draft.post(answer)
            else:
                draft.tell(request.sender, answer)

    def _fail(self, draft: Draft, request: Request) -> None:
        """Notify the sender that no answer comes; a failed connection fails all its requests."""
        if request.sender == WRITER:
            self._orphan(draft, request.bookie)
        draft.tell(request.sender, Failure(request))

    def _orphan(self, draft: Draft, bookie: int) -> None:
        """Stop the writer's wait for a bookie's answers; its adds may still arrive."""
        messages = draft.messages
        draft.messages = []
        for number in messages:
            message = self._pools.messages.values[number]
            if isinstance(message, Update | Seen):
                draft.messages.append(number)
                continue
            request = message if isinstance(message, Request) else message.request
            if request.sender != WRITER or request.bookie != bookie:
                draft.messages.append(number)
            elif isinstance(message, Request):
                draft.post(request._replace(is_awaited=False))

    # -- bookies -----------------------------------------------------------------------------------

    def _of_bookies(self, world: World) -> Iterator[tuple[Label, World]]:
        bookies, scope = self._pools.bookies, self._scope
        first = bookies.states[world.bookies[0]]
        if scope.is_slow and (first.queue or first.waiting) and not world.lost & 1:
            draft = self.begin(world, "{} syncs", NAMES[0])
            draft.bookies[0], answers = bookies.sync(world.bookies[0])
            self._answer(draft, answers)
            yield self.label, draft.freeze()
        for bookie in scope.mortals if world.budget[3] else ():
            if world.lost >> bookie & 1:
                continue
            what = "restarts" if scope.is_slow else "dies"
            draft = self.begin(world, "{} {}", NAMES[bookie], what, fault="crash")
            number, unanswered = bookies.restart(world.bookies[bookie])
            if scope.is_slow:
                draft.bookies[bookie] = number
            else:
                draft.lost |= 1 << bookie
            for request in unanswered:
                if request.is_awaited:
                    draft.post(Failure(request))
            yield self.label, draft.freeze()

    def _damage(self, world: World) -> Iterator[tuple[Label, World]]:
        """Restart a bookie with damage in its log: it fences every ledger (2.4)."""
        for bookie in self._scope.mortals:
            if (world.lost | world.damaged) >> bookie & 1:
                continue
            draft = self.begin(world, "{} restarts damaged", NAMES[bookie], fault="damage")
            draft.bookies[bookie] = self._pools.bookies.damage(world.bookies[bookie])
            draft.damaged |= 1 << bookie
            yield self.label, draft.freeze()

    def _return_on_old_copies(self, world: World) -> Iterator[tuple[Label, World]]:
        """Start a bookie on directories that were copied before the ledger was created (9.13)."""
        for bookie in self._scope.mortals:
            number = self._pools.bookies.old_copy(world.bookies[bookie])
            if number is None or (world.lost | world.damaged) >> bookie & 1:
                continue
            draft = self.begin(world, "{} returns on an old copy", NAMES[bookie], fault="old copy")
            draft.bookies[bookie] = number
            yield self.label, draft.freeze()

    def _repair(self, world: World) -> Iterator[tuple[Label, World]]:
        """Copy the first fragment's entries to a bookie outside it, and swap it in (9.1)."""
        pools = self._pools
        stored = pools.metadata.values[world.metadata]
        older = stored.fragments[0]
        names = NAMES[: self._scope.bookies]
        spares = [name for name in names if name not in older.ensemble]
        if not spares or stored.state is LedgerState.CLOSED:
            return
        draft = self.begin(
            world, "a repair puts {} in place of {}", spares[0], older.ensemble[0], fault="repair"
        )
        last = stored.fragments[1].first_entry_id - 1
        target = names.index(spares[0])
        held = [pools.bookies.states[number].held for number in world.bookies]
        for each in range(last + 1):
            if any(bookie[each] != NOT_HELD for bookie in held):
                copy = Request("back", False, WRITER, target, each, each, -1)
                self.ask(draft, copy)
        changed = type(older)(entry(0), (spares[0], *older.ensemble[1:]))
        token = token_of(9, 3, world.version)
        draft.metadata = pools.metadata.number(stored.with_fragment(0, changed, token))
        draft.version += 1
        yield self.label, draft.freeze()

    # -- the metadata store ------------------------------------------------------------------------

    def _of_store(self, world: World, actor: int) -> Iterator[tuple[Label, World]]:
        pools = self._pools
        operation = pools.operations.values[world.operations[actor]]
        assert operation is not None
        who = WHO[actor]
        if operation.metadata < 0:
            draft = self._read(world, actor, operation)
            yield self.label, draft.freeze()
            return
        metadata, expected, history, reply = operation
        if reply is not None:
            draft = self.begin(world, "{} learns how its update went", who)
            self._go_on(draft, actor, Operation(metadata, expected, (*history, reply)))
            yield self.label, draft.freeze()
            return
        wanted, _ = pools.calls.wants(metadata, expected, history)
        if wanted == GET:
            draft = self.begin(world, "{} reads the metadata back", who)
            value = (VALUE, world.metadata, world.version)
            self._go_on(draft, actor, Operation(metadata, expected, (*history, value)))
            yield self.label, draft.freeze()
            return
        assert wanted == SET
        draft = self.begin(world, "the update of {} reaches the store", who)
        is_stored = draft.compare_and_set(metadata, expected)
        reply = (OK, expected + 1) if is_stored else (CONFLICT,)
        draft.operations[actor] = pools.operations.number(operation._replace(reply=reply))
        yield self.label, draft.freeze()
        if world.budget[2]:
            draft = self.begin(world, "{} does not learn of its update", who, fault="unknown")
            if expected == world.version:
                draft.post(Update(metadata, expected))
            self._go_on(draft, actor, Operation(metadata, expected, (*history, (UNKNOWN,))))
            yield self.label, draft.freeze()

    def _read(self, world: World, actor: int, operation: Operation) -> Draft:
        """Read the metadata; the answer to the writer travels in a separate step."""
        reply = operation.reply
        if reply is not None:
            draft = self.begin(world, "{} learns what it read", WHO[actor])
            draft.operations[actor] = 0
            draft.tell(actor, Told("conflicted", reply[1:]))
            return draft
        draft = self.begin(world, "{} reads the metadata", WHO[actor])
        if actor == WRITER:
            read = operation._replace(reply=(VALUE, world.metadata, world.version))
            draft.operations[actor] = self._pools.operations.number(read)
        else:
            draft.operations[actor] = 0
            draft.told_stored(actor)
        return draft

    def _go_on(self, draft: Draft, actor: int, operation: Operation) -> None:
        """Pass an answer to the call."""
        pools = self._pools
        metadata, expected, history, _ = operation
        wanted, version = pools.calls.wants(metadata, expected, history)
        draft.operations[actor] = 0
        if wanted in (SET, GET):
            draft.operations[actor] = pools.operations.number(operation)
        elif wanted == LOST:
            draft.operations[actor] = pools.operations.number(Operation(-1, 0))
        else:
            draft.tell(actor, Told("stored", (metadata, version)))

    # -- actors ------------------------------------------------------------------------------------

    def _of_writer(self, world: World) -> Iterator[tuple[Label, World]]:
        scope = self._scope
        count = len(world.sent)
        writer = self._pools.writers.states[world.actors[WRITER]]
        assert writer is not None
        if count < scope.entries and not world.is_closing and not writer.lacks_in_sync:
            draft = self.begin(world, "append {}", count)
            draft.sent = (*world.sent, world.acknowledged - 1)
            draft.tell(WRITER, Told("append", (count,)))
            yield self.label, draft.freeze()
        if scope.closes and not world.is_closing:
            draft = self.begin(world, "the caller closes", is_free=True)
            draft.is_closing = True
            draft.tell(WRITER, Told("close", (world.version,)))
            yield self.label, draft.freeze()
        yield from self._of_membership(world, writer)

    def _of_membership(self, world: World, writer: AppendProtocol) -> Iterator[tuple[Label, World]]:
        """Let bookies fail, join or return, as the writer sees it."""
        scope = self._scope
        if world.budget[5]:
            draft = self.begin(world, "a spare joins", fault="join")
            draft.tell(WRITER, Told("joined"))
            yield self.label, draft.freeze()
        for name in writer.parked if world.budget[6] else ():
            draft = self.begin(world, "{} answers again", name, fault="return")
            draft.tell(WRITER, Told("returned", (NAMES.index(name),)))
            yield self.label, draft.freeze()
        ensemble = writer.metadata.last_fragment.ensemble
        for bookie in scope.suspects if world.budget[0] else ():
            if NAMES[bookie] not in ensemble:
                continue
            for kind in scope.kinds:
                if kind == "lagging" and not writer.lag_entries(NAMES[bookie]):
                    continue
                draft = self.begin(
                    world, "the writer finds {} {}", NAMES[bookie], kind, fault="failure"
                )
                if kind == "gone":
                    self._orphan(draft, bookie)
                draft.tell(WRITER, Told(kind, (bookie,)))
                yield self.label, draft.freeze()

    def _of_recoverers(self, world: World) -> Iterator[tuple[Label, World]]:
        for actor in range(1, len(world.actors)):
            if world.actors[actor] == FIRST:
                draft = self.begin(world, "recoverer {} starts", actor)
                draft.told_stored(actor)
                yield self.label, draft.freeze()
                break
        if not world.budget[1]:
            return
        last = -1
        for at, number in enumerate(world.messages):
            message = self._pools.messages.values[number]
            if number == last or not isinstance(message, Request):
                continue
            last = number
            if message.sender != WRITER and message.is_awaited:
                where = NAMES[message.bookie]
                draft = self.begin(world, "{} at {} is given up", message, where, fault="silence")
                if message.kind != "back":  # a late answer to a write-back still counts
                    draft.drop(at)
                    draft.post(message._replace(is_awaited=False))
                draft.tell(message.sender, Failure(message))
                yield self.label, draft.freeze()

"""Model that drives the real `RecoveryProtocol` against simple bookies in random order: a live
writer, several concurrent recoverers, lost messages, failing bookies.

Leaves the choice of histories to `test_recovery_protocol.py`.

Invariants checked by `check`: no acknowledged entry is lost; there is one close, which all adopt;
every entry of the closed ledger is on an ack quorum of the bookies that its metadata names, and its
length is theirs. In in-sync mode also (11.5): nothing is read before all members have answered or
failed; no end is before an entry that was found or is still awaited; entries that only live members
of the last fragment hold are sufficient.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from bookie.wire.messages import Status
from ledger_client.protocol import recovery_events as e
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ids import NO_ENTRY, BookieId, EntryId, Version
from metadata.ledgers.copies import stripe_end, write_set
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec
from tests.scenarios.words import TOKEN, ledger

STEPS_MAX = 20_000
SPARES = tuple(BookieId(name) for name in "xyz")


class ViolationError(AssertionError):
    """A rule of the protocol was violated."""


def size_of(entry_id: int) -> int:
    return 3 + entry_id % 4


@dataclass
class ModelBookie:
    """State of one bookie. Everything it accepts is durable at once."""

    entries: dict[int, bool] = field(default_factory=dict)
    lac: int = NO_ENTRY
    is_fenced: bool = False
    is_down: bool = False
    is_dead: bool = False
    """Whether it is down permanently."""

    def fence(self) -> None:
        self.is_fenced = True

    def add(self, first: int, count: int, lac: int, *, recovery: bool) -> Status:
        if self.is_fenced and not recovery:
            return Status.FENCED
        self.entries.update(dict.fromkeys(range(first, first + count), True))
        self.lac = max(self.lac, lac)
        return Status.OK

    def die(self) -> None:
        self.is_down = self.is_dead = True


@dataclass(frozen=True)
class Odds:
    """Probabilities of faults."""

    lost: float = 0.05
    down: float = 0.3
    """Probability that one bookie of the ensemble is away throughout."""
    older_fragment: float = 0.4
    """Probability of an earlier ensemble change, with a repair that swaps a bookie."""
    slice: float = 0.5
    dead: float = 0.0
    """Probability that all but one or more bookies of the ensemble die permanently."""


class Inbox:
    """Events that one recoverer has received, and answers that it still awaits."""

    def __init__(self) -> None:
        self.unfenced: dict[BookieId, None] = {}
        self.reading: dict[tuple[BookieId, EntryId], EntryId] = {}
        self.found: dict[int, None] = {}

    def receive(self, event: e.RecoveryEvent) -> None:
        if isinstance(event, e.FenceAnswered | e.FenceFailed):
            self.unfenced.pop(event.bookie_id, None)
        elif isinstance(event, e.RangeAnswered | e.RangeFailed):
            self.reading.pop((event.bookie_id, event.first_entry_id), None)
        if isinstance(event, e.RangeAnswered):
            for run in event.runs:
                self.found.update(dict.fromkeys(range(run.first_entry_id, run.next_entry_id)))

    def judge(self, action: e.RecoveryAction) -> None:
        """Raise ViolationError if the recovery of an in-sync ledger does not wait (11.5)."""
        match action:
            case e.Fence(name):
                self.unfenced[name] = None
            case e.ReadRange(name, first, last):
                if self.unfenced:
                    raise ViolationError(f"it reads without an answer of {list(self.unfenced)}")
                self.reading[name, first] = last
            case e.StoreClosed():
                end = action.last_entry_id + 1
                if end in self.found:
                    raise ViolationError(f"entry {end} was found, and cut off")
                if any(first <= end <= last for (_, first), last in self.reading.items()):
                    raise ViolationError(f"it ends before {end} without all answers")
            case _:
                pass


class Model:
    """One ledger, one writer, some recoverers, and the messages under way."""

    def __init__(self, quorum: QuorumSpec, rng: Random, odds: Odds, *, recoverers: int) -> None:
        self.rng = rng
        self.odds = odds
        names = tuple(BookieId(name) for name in "abcdef"[: quorum.ensemble_size])
        self.bookies = {name: ModelBookie() for name in (*names, *SPARES)}
        self.stored = ledger(quorum, [Fragment(EntryId(0), names)], LedgerState.OPEN)
        self.version = Version(1)
        self.original = self.stored.last_fragment
        self.closes: list[tuple[int, int]] = []
        self.messages: list[Callable[[], None]] = []
        self.pushed = 0
        self.acks: dict[int, dict[BookieId, None]] = {}
        self.acknowledged = EntryId(NO_ENTRY)
        self.ended: dict[int, e.RecoveryAction] = {}
        self.recoverers = [RecoveryProtocol() for _ in range(recoverers)]
        self.inboxes = [Inbox() for _ in range(recoverers)]
        self.swapped: BookieId | None = None
        if rng.random() < odds.older_fragment:
            self.begin_with_older_fragment(names)
        if rng.random() < odds.down:
            self.bookies[rng.choice(names)].is_down = True
        if odds.dead and rng.random() < odds.dead:
            self.send(self.kill_many)

    def kill_many(self) -> None:
        """Kill at most n - 1 of n members, and any number of spares."""
        members = self.original.ensemble
        dying = [*self.rng.sample(members, self.rng.randint(0, len(members) - 1))]
        dying += self.rng.sample(SPARES, self.rng.randint(0, len(SPARES)))
        for name in dying:
            self.bookies[name].die()

    def run(self, *, entries: int, starting: bool = True) -> None:
        """Play until nothing is under way; every recoverer starts at some moment, or has started
        before.
        """
        waiting = list(range(len(self.recoverers))) if starting else []
        for _ in range(STEPS_MAX):
            choices = len(self.messages) + (3 if self.pushed < entries else 0) + len(waiting)
            if not choices:
                return
            choice = self.rng.randrange(choices)
            if choice < len(self.messages):
                self.messages.pop(choice)()
            elif waiting and choice >= choices - len(waiting):
                number = waiting.pop(choice - (choices - len(waiting)))
                self.receive(number, e.MetadataRead(self.stored, self.version))
            elif self.pushed < entries:
                self.append(min(self.rng.randint(1, 3), entries - self.pushed))
        raise ViolationError("it does not end")

    def begin_with_older_fragment(self, names: tuple[BookieId, ...]) -> None:
        """Acknowledge three entries in a separate fragment, and schedule a repair."""
        before = (*names[1:], SPARES[2])
        for name in before:
            self.bookies[name].add(0, 3, NO_ENTRY, recovery=False)
        self.pushed, self.acknowledged = 3, EntryId(2)
        fragments = [Fragment(EntryId(0), before), Fragment(EntryId(3), names)]
        self.stored = ledger(self.stored.quorum, fragments, LedgerState.OPEN)
        self.original = self.stored.last_fragment
        self.send(self.repair)

    def repair(self) -> None:
        """Copy the older fragment to another bookie and swap it in (rule 9.1)."""
        older = self.stored.fragments[0]
        self.swapped = SPARES[1]
        self.bookies[self.swapped].add(0, 3, NO_ENTRY, recovery=True)
        changed = Fragment(EntryId(0), (*older.ensemble[:-1], self.swapped))
        self.stored = self.stored.with_fragment(0, changed, TOKEN)
        self.version = Version(self.version + 1)

    # -- the writer --------------------------------------------------------------------------------

    def append(self, count: int) -> None:
        """Send one batch to its write set."""
        quorum, first = self.stored.quorum, self.pushed
        count = min(count, stripe_end(quorum, EntryId(first)) - first + 1)
        lac, fragment = self.acknowledged, self.original
        self.pushed += count
        for name in write_set(quorum, fragment, EntryId(first)):
            self.send(lambda name=name: self.store(name, first, count, lac))  # type: ignore[misc]

    def store(self, name: BookieId, first: int, count: int, lac: int) -> None:
        bookie = self.bookies[name]
        if bookie.is_down or self.is_lost():
            return
        if bookie.add(first, count, lac, recovery=False) is Status.OK and not self.is_lost():
            self.send(lambda: self.acknowledge(name, first, count))

    def acknowledge(self, name: BookieId, first: int, count: int) -> None:
        for entry_id in range(first, first + count):
            self.acks.setdefault(entry_id, {})[name] = None
        needed = self.stored.quorum.ack_quorum
        while len(self.acks.get(self.acknowledged + 1, {})) >= needed:
            self.acknowledged = EntryId(self.acknowledged + 1)

    # -- the recoverers ----------------------------------------------------------------------------

    def receive(self, number: int, event: e.RecoveryEvent) -> None:
        self.inboxes[number].receive(event)
        for action in self.recoverers[number].handle(event):
            if self.stored.quorum.is_in_sync:
                self.inboxes[number].judge(action)
            self.perform(number, action)

    def answer(self, number: int, event: e.RecoveryEvent) -> None:
        self.send(lambda: self.receive(number, event))

    def perform(self, number: int, action: e.RecoveryAction) -> None:
        match action:
            case e.Finish() | e.Fail():
                if number in self.ended:
                    raise ViolationError("it ended twice")
                self.ended[number] = action
            case e.StoreInRecovery() | e.StoreClosed():
                self.store_metadata(number, action)
            case e.ReadMetadata():
                self.send(lambda: self.answer(number, e.MetadataRead(self.stored, self.version)))
            case e.Fence(name):
                self.send(lambda: self.fence(number, name))
            case e.ReadRange(name, first, last):
                self.send(lambda: self.read(number, name, first, last))
            case e.FindLength(entry_id):
                self.answer(number, e.LengthFound(sum(map(size_of, range(entry_id)))))
            case e.WriteBack(name, span, lac):
                if span.length_before != sum(map(size_of, range(span.first_entry_id))):
                    raise ViolationError(f"length before {span} is wrong")
                self.send(lambda: self.write_back(number, name, span, lac))
            case e.ChooseReplacements():
                self.choose(number, action)
            case e.ReleaseEntries():
                pass

    def store_metadata(self, number: int, action: e.StoreInRecovery | e.StoreClosed) -> None:
        if isinstance(action, e.StoreInRecovery):
            changed = action.on.with_recovery_begun(TOKEN)
        else:
            end = action.last_entry_id, action.length
            changed = action.on.with_recovered(action.recovered, *end, TOKEN)
        self.send(lambda: self.compare_and_set(number, changed, action.version))

    def choose(self, number: int, action: e.ChooseReplacements) -> None:
        living = [b for b in SPARES if not self.bookies[b].is_dead]
        spares = [b for b in living if b not in action.ensemble and b not in action.failed]
        needed = len(action.positions)
        if len(spares) < needed:
            self.answer(number, e.ReplacementsMissing(needed, len(spares), {}))
            return
        chosen = zip(action.positions, self.rng.sample(spares, needed), strict=True)
        self.answer(number, e.ReplacementsChosen(dict(chosen)))

    def compare_and_set(self, number: int, changed: LedgerMetadata, version: Version) -> None:
        if version != self.version:
            self.answer(number, e.MetadataRead(self.stored, self.version))
            return
        self.stored, self.version = changed, Version(version + 1)
        if changed.last_entry_id is not None and changed.length is not None:
            self.closes.append((changed.last_entry_id, changed.length))
        self.answer(number, e.MetadataStored(changed, self.version))

    def fence(self, number: int, name: BookieId) -> None:
        bookie = self.bookies[name]
        if bookie.is_down or self.is_lost():
            self.answer(number, e.FenceFailed(name, "away"))
            return
        bookie.fence()
        status = Status.OK if bookie.entries else Status.NO_SUCH_LEDGER
        if self.is_lost():
            self.answer(number, e.FenceFailed(name, "away"))
        else:
            lac = EntryId(bookie.lac)
            self.answer(number, e.FenceAnswered(name, status, lac, fenced=True))

    def read(self, number: int, name: BookieId, first: EntryId, last: EntryId) -> None:
        bookie = self.bookies[name]
        if bookie.is_down or self.is_lost():
            self.answer(number, e.RangeFailed(name, first, "away"))
            return
        bookie.fence()
        runs: list[e.FoundRun] = []
        position = first
        while position <= last and position in bookie.entries:
            stop = position
            while stop <= last and stop in bookie.entries and self.rng.random() < 0.8:
                stop = EntryId(stop + 1)
            stop = EntryId(max(stop, position + 1))
            lengths = tuple(size_of(each) for each in range(position, stop))
            before = sum(map(size_of, range(position)))
            is_slice = self.rng.random() < self.odds.slice
            runs.append(e.FoundRun(position, lengths, None if is_slice else before))
            position = stop
            if self.rng.random() < 0.1:
                break
        status = Status.OK
        if position <= last and position not in bookie.entries:
            status = Status.NO_SUCH_ENTRY
        if self.is_lost():
            self.answer(number, e.RangeFailed(name, first, "away"))
        else:
            self.answer(number, e.RangeAnswered(name, first, tuple(runs), position, status))

    def write_back(self, number: int, name: BookieId, span: e.Span, lac: EntryId) -> None:
        bookie = self.bookies[name]
        first = span.first_entry_id
        if bookie.is_down or self.is_lost():
            self.answer(number, e.SpanRefused(name, first, None, "away"))
            return
        bookie.add(first, span.count, lac, recovery=True)
        if self.is_lost():
            self.answer(number, e.SpanRefused(name, first, None, "away"))
        else:
            self.answer(number, e.SpanStored(name, first))

    # -- messages and checks
    # ------------------------------------------------------------------------

    def send(self, deliver: Callable[[], None]) -> None:
        self.messages.append(deliver)

    def is_lost(self) -> bool:
        return self.rng.random() < self.odds.lost

    def recover_in_peace(self) -> None:
        """Restore all bookies that are not dead, lose nothing more, and recover once again."""
        for bookie in self.bookies.values():
            bookie.is_down = bookie.is_dead
        self.odds = Odds(lost=0.0, down=0.0)
        self.recoverers.append(RecoveryProtocol())
        self.inboxes.append(Inbox())
        number = len(self.recoverers) - 1
        self.receive(number, e.MetadataRead(self.stored, self.version))
        self.run(entries=self.pushed, starting=False)
        if not isinstance(self.ended.get(number), e.Finish):
            raise ViolationError(f"in peace it ends with {self.ended.get(number)}")

    def check(self) -> None:
        """Raise ViolationError unless every rule is true at the end."""
        if len(self.ended) != len(self.recoverers):
            raise ViolationError("a recoverer did not end")
        if len(self.closes) != 1:
            raise ViolationError(f"it was closed {len(self.closes)} times")
        stored, (close,) = self.stored, self.closes
        for ended in self.ended.values():
            if isinstance(ended, e.Finish) and ended.metadata.last_entry_id != close[0]:
                raise ViolationError("two ends")
            if isinstance(ended, e.Fail) and isinstance(ended.failure, e.FragmentsChanged):
                raise ViolationError("somebody closed it first, and this one calls that a failure")
        if self.swapped is not None and self.swapped not in stored.fragments[0].ensemble:
            raise ViolationError("a repair was undone")
        self.check_entries(*close)

    def check_entries(self, last: int, length: int) -> None:
        """Raise ViolationError unless the closed ledger contains every promised entry."""
        if last < self.acknowledged:
            raise ViolationError(f"{self.acknowledged} was acknowledged, the end is {last}")
        if length != sum(map(size_of, range(last + 1))):
            raise ViolationError(f"length {length} at {last}")
        for entry_id in range(last + 1):
            self.check_copies(EntryId(entry_id))
        for bookie in self.bookies.values():
            if bookie.lac > last:
                raise ViolationError("a LAC beyond the end: a dirty read")

    def check_copies(self, entry_id: EntryId) -> None:
        """Raise ViolationError unless an ack quorum of the responsible bookies holds an entry; in
        the last fragments of an in-sync ledger, a live one too.
        """
        stored, fragment = self.stored, self.stored.fragment_of(entry_id)
        quorum = stored.quorum_of(fragment)
        replicas = write_set(quorum, fragment, entry_id)
        holding = [name for name in replicas if entry_id in self.bookies[name].entries]
        if len(holding) < quorum.ack_quorum:
            raise ViolationError(f"entry {entry_id} has {len(holding)} copies at {replicas}")
        is_recent = entry_id >= self.original.first_entry_id
        if is_recent and all(self.bookies[name].is_dead for name in holding):
            raise ViolationError(f"no live bookie has entry {entry_id}")


def explore(quorum: QuorumSpec, seed: int, *, recoverers: int, odds: Odds) -> Model:
    """Play one history to its end, without faults at last, and check it."""
    rng = Random(f"{quorum} {recoverers} {seed}")
    model = Model(quorum, rng, odds, recoverers=recoverers)
    model.run(entries=rng.randint(0, 8))
    model.recover_in_peace()
    model.check()
    return model

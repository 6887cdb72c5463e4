"""Model that drives the real `AppendProtocol` through random histories: failing bookies, late
answers, delayed and dropped ensemble changes, closes, and recoverers that fence the writer.

Leaves bookies, recoverers and most of the checks to `recovery_model`.

Additional invariants: entries are confirmed in order, without gaps; confirmed entries are on an ack
quorum of the ensemble stored at that moment (4.4); nothing is confirmed beyond another's close; a
writer that closed agrees with the stored metadata; a writer whose bookies live makes progress.

`InSyncModel` adds section 11: members fail, lag, return, join, catch up, and die permanently while
one lives that is stored as in sync. Additional invariants: every member stored as in sync holds
every confirmed entry; the last one never leaves; no set shrinks below `min_in_sync`, and nothing is
confirmed below it; with enough live members everything is confirmed, and members that join are
finally in sync.
"""

from random import Random
from typing import TYPE_CHECKING

from bookie.wire.messages import Status
from ledger_client.protocol import append_events as a
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from metadata.ids import NO_ENTRY, BookieId, EntryId, Version
from metadata.ledgers.copies import stripe_end, write_set
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec
from quire.server.overriding import override
from tests.scenarios.words import TOKEN
from tests.support.ledger_client.recovery_model import Model, Odds, ViolationError, size_of

if TYPE_CHECKING:
    from ledger_client.errors import LedgerError

FAILURE_ODDS = 0.08
RETURN_ODDS = 0.3
CLOSE_ODDS = 0.05
NO_SPARE_ODDS = 0.2
ALL_FAIL_ODDS = 0.3
MOMENTS_MAX = 40  # maximum number of failures and repairs in an in-sync history


class WriterModel(Model):
    """One ledger with its real writer."""

    def __init__(
        self, quorum: QuorumSpec, rng: Random, *, recoverers: int, options: AppendOptions
    ) -> None:
        # The writer starts at entry 0, with every bookie up: failures come later.
        super().__init__(quorum, rng, Odds(down=0.0, older_fragment=0.0), recoverers=recoverers)
        self.writer = AppendProtocol(self.stored, self.version, options)
        self.error: LedgerError | None = None
        self.written: LedgerMetadata | None = None
        self.unsent: a.StoreMetadata | None = None
        self.dropped = 0
        self.is_closing = False
        self.counts: dict[EntryId, int] = {}
        self.changes = 0

    # -- events of the writer ----------------------------------------------------------------------

    @override
    def append(self, count: int) -> None:
        """Append, or inject a failure."""
        if self.error is not None or self.written is not None:
            self.pushed += count  # it has no effect any more
            return
        self.disturb()
        self.push(count)

    def disturb(self) -> None:
        """Inject a failure, or end one, before an append."""
        if self.rng.random() < FAILURE_ODDS:
            name = self.rng.choice(self.writer.metadata.last_fragment.ensemble)
            kind = self.rng.choice(list(a.FailureKind))
            self.send(lambda: self.notify(a.BookieFailed(name, kind, "drawn")))
        if self.writer.parked and self.rng.random() < RETURN_ODDS:
            back: list[a.AppendEvent] = [a.BookieReturned(self.writer.parked[0]), a.SpareJoined()]
            event = self.rng.choice(back)
            self.send(lambda: self.notify(event))
        if self.unsent is not None and self.rng.random() < RETURN_ODDS:
            for name in self.writer.out:
                self.notify(a.BookieReturned(name))
            self.notify(a.ChangeUnsent())
        if self.rng.random() < CLOSE_ODDS:
            self.send(self.close)

    def take_back_parked(self) -> None:
        """Report the parked bookies as returned, as the writer's probes of them do at last."""
        for name in list(self.writer.parked):
            self.notify(a.BookieReturned(name))
        self.run(entries=0, starting=False)

    def push(self, count: int) -> None:
        quorum, first = self.stored.quorum, EntryId(self.pushed)
        count = min(count, stripe_end(quorum, first) - first + 1)
        self.pushed += count
        size = sum(map(size_of, range(first, first + count)))
        self.counts[first] = count
        self.notify(a.BatchAppended(first, count, size))

    def close(self) -> None:
        """Close the ledger and abandon pending appends."""
        if self.error is None and self.written is None and not self.is_closing:
            self.is_closing = True
            self.notify(a.CloseRequested(TOKEN))

    def notify(self, event: a.AppendEvent) -> None:
        for action in self.writer.handle(event):
            self.do(action)

    def do(self, action: a.AppendAction) -> None:  # noqa: C901 - a case for each
        match action:
            case a.SendBatch(first, names):
                self.send_batch(first, names)
            case a.Confirm(lac, length):
                self.confirm(lac, length)
            case a.ChooseReplacements():
                self.notify(self.choice(action))
            case a.StoreMetadata():
                self.unsent = action
                self.send(lambda: self.send_change(action))
            case a.DropChange():
                self.dropped += self.unsent is not None
                self.unsent = None
            case a.ReadMetadata():
                self.send(lambda: self.notify(a.MetadataConflicted(self.stored, self.version)))
            case a.FailWriter(error):
                self.error = self.error or error
                if not self.writer.has_ended:
                    self.notify(a.CloseRequested(TOKEN))
            case a.Closed(metadata):
                self.written = metadata
            case a.MembersChanged():
                self.changes += 1
            case a.ProposeMembers():
                self.send(lambda: self.notify(a.MembersProposed(TOKEN)))
            case a.Settle() | a.RecordStretch():
                pass

    def choice(self, action: a.ChooseReplacements) -> a.ReplacementsChosen | a.ReplacementsMissing:
        """Replace as many members as there are spares, as the shell does."""
        taken = {*action.ensemble, *action.excluded}
        spares = [b for b in self.bookies if b not in taken]
        if not spares or self.rng.random() < NO_SPARE_ODDS:
            return a.ReplacementsMissing(len(action.positions), 0, {})
        return a.ReplacementsChosen(dict(zip(action.positions, spares, strict=False)), TOKEN)

    def send_batch(self, first: EntryId, names: tuple[BookieId, ...]) -> None:
        count, lac = self.counts[first], EntryId(min(self.acknowledged, first - 1))
        for name in names:
            self.send(lambda name=name: self.deliver(name, first, count, lac))  # type: ignore[misc]

    def deliver(self, name: BookieId, first: EntryId, count: int, lac: int) -> None:
        if self.bookies[name].is_down or self.is_lost():
            self.notify(a.BookieFailed(name, a.FailureKind.GONE, "lost"))
            return
        status = self.bookies[name].add(first, count, lac, recovery=False)
        if status is Status.OK:
            self.send(lambda: self.notify(a.BatchStored(first, name)))
        else:
            self.send(lambda: self.notify(a.StoreRefused(first, name, status)))

    def confirm(self, lac: EntryId, length: int) -> None:
        """Check a confirmation at the moment it is made."""
        if lac <= self.acknowledged or length != sum(map(size_of, range(lac + 1))):
            raise ViolationError(f"confirmed {lac} with length {length}")
        stored = self.stored
        if stored.last_entry_id is not None and lac > stored.last_entry_id:
            raise ViolationError(f"{lac} was confirmed beyond the end, {stored.last_entry_id}")
        for entry in range(self.acknowledged + 1, lac + 1):
            entry_id = EntryId(entry)
            fragment = stored.fragment_of(entry_id)
            quorum = stored.quorum_of(fragment)
            replicas = write_set(quorum, fragment, entry_id)
            copies = sum(entry in self.bookies[name].entries for name in replicas)
            if copies < quorum.ack_quorum:
                raise ViolationError(f"{entry} was confirmed with {copies} copies at {replicas}")
        self.acknowledged = lac

    def send_change(self, action: a.StoreMetadata) -> None:
        """Send a change, unless it was dropped before."""
        if self.unsent is action:
            self.unsent = None
            self.store_change(action.metadata, action.expected)

    def store_change(self, changed: LedgerMetadata, version: Version) -> None:
        if version == self.version:
            self.stored, self.version = changed, Version(version + 1)
            if changed.last_entry_id is not None and changed.length is not None:
                self.closes.append((changed.last_entry_id, changed.length))
            event: a.AppendEvent = a.MetadataStored(changed, self.version)
        else:
            event = a.MetadataConflicted(self.stored, self.version)
        self.send(lambda: self.notify(event))

    def check_writer(self) -> None:
        """Raise ViolationError unless the writer ended or confirmed everything."""
        if self.written is not None:
            if (self.written.last_entry_id, self.written.length) != self.closes[0]:
                raise ViolationError("the writer closed elsewhere")
        elif self.error is None:
            if self.is_closing:
                raise ViolationError("the close does not end")
            if self.acknowledged != self.pushed - 1:
                raise ViolationError(f"stuck at {self.acknowledged} of {self.pushed - 1}")


def explore_writer(
    quorum: QuorumSpec, seed: int, *, recoverers: int, options: AppendOptions
) -> WriterModel:
    """Play one history to its end, without faults at last, and check it."""
    rng = Random(f"writer {quorum} {recoverers} {options} {seed}")
    model = WriterModel(quorum, rng, recoverers=recoverers, options=options)
    model.run(entries=rng.randint(0, 12))
    model.take_back_parked()
    model.check_writer()
    model.recover_in_peace()
    model.check()
    return model


def members_in_sync(metadata: LedgerMetadata) -> list[BookieId]:
    """Return the members of the last fragment that every fragment names (11.2)."""
    ensembles = [fragment.ensemble for fragment in metadata.fragments]
    return [b for b in ensembles[-1] if all(b in ensemble for ensemble in ensembles)]


class InSyncModel(WriterModel):
    """One in-sync ledger with its real writer, and a copier."""

    def __init__(
        self, quorum: QuorumSpec, rng: Random, *, recoverers: int, options: AppendOptions
    ) -> None:
        super().__init__(quorum, rng, recoverers=recoverers, options=options)
        self.is_copying = False
        self.caught_up = self.lagged = 0
        self.moments_left = rng.randint(0, MOMENTS_MAX)
        self.send(self.moment)

    @override
    def disturb(self) -> None:
        """Do nothing: failures come at random moments."""

    def moment(self) -> None:
        worse = [self.fail_some, self.fail_some, self.fail_some, self.die_one, self.die_one]
        self.rng.choice([*worse, self.return_one, self.join_one, self.begin_copy])()
        if self.rng.random() < CLOSE_ODDS / 4:
            self.close()
        self.moments_left -= 1
        if self.moments_left > 0:
            self.send(self.moment)

    def fail_some(self) -> None:
        members = self.writer.metadata.last_fragment.ensemble
        for name in members if self.rng.random() < ALL_FAIL_ODDS else self.rng.sample(members, 1):
            self.fail(name)

    def fail(self, name: BookieId) -> None:
        if self.writer.lag_entries(name):
            self.lagged += 1
            self.notify(a.BookieFailed(name, a.FailureKind.LAGGING, "drawn"))
        elif self.rng.random() < 1 / 2 and self.writer.may_suspect(name, has_spare=True):
            self.notify(a.BookieFailed(name, a.FailureKind.SUSPECTED, "drawn"))
        else:
            self.bookies[name].is_down = True
            self.notify(a.BookieFailed(name, a.FailureKind.GONE, "drawn"))

    def die_one(self) -> None:
        name = self.rng.choice(list(self.bookies))
        living = [b for b in members_in_sync(self.stored) if not self.bookies[b].is_dead]
        if self.stored.state is LedgerState.OPEN and living != [name]:
            self.bookies[name].die()
            self.notify(a.BookieFailed(name, a.FailureKind.GONE, "dead"))

    def return_one(self) -> None:
        for bookie in self.rng.sample(list(self.bookies.values()), 2):
            bookie.is_down = bookie.is_dead
        for name in self.writer.parked if self.unsent is None else self.writer.out:
            if self.is_up(name):
                self.notify(a.BookieReturned(name))
        if self.unsent is not None:
            self.notify(a.ChangeUnsent())

    def join_one(self) -> None:
        name = self.rng.choice(list(self.bookies))
        if self.is_up(name):
            self.notify(a.MemberReady(name, TOKEN))

    def begin_copy(self) -> None:
        """Start copying to the first member that lacks fragments in the writer's view."""
        fragments = self.writer.metadata.fragments
        for target in fragments[-1].ensemble:
            lacked = [f.first_entry_id for f in fragments[:-1] if target not in f.ensemble]
            if lacked and self.is_up(target) and not self.is_copying:
                self.is_copying = True
                self.copy(target, lacked[-1], lacked[-1])

    def copy(self, target: BookieId, first: EntryId, entry: int) -> None:
        """Copy one entry, then the next; finally make the target a member (9.1)."""
        stored, index = self.stored, self.stored.fragment_index_of(first)
        members = stored.fragments[index].ensemble
        self.is_copying = False
        if not self.is_up(target):
            return
        if target in members:  # the writer was informed while it could not receive it
            self.notify(a.MetadataSeen(stored, self.version))
        elif entry == stored.fragments[index + 1].first_entry_id:
            self.name_copy(target, index)
        elif any(entry in self.bookies[b].entries for b in members if self.is_up(b)):
            self.bookies[target].add(entry, 1, NO_ENTRY, recovery=True)
            self.is_copying = True
            self.send(lambda: self.copy(target, first, entry + 1))

    def name_copy(self, target: BookieId, index: int) -> None:
        """Make the target a member; in a full fragment, in the place of a bookie that is no longer
        a member.
        """
        stored, fragment = self.stored, self.stored.fragments[index]
        members = fragment.ensemble
        if len(members) == stored.quorum.ensemble_size:
            left = next(b for b in members if b not in stored.last_fragment.ensemble)
            members = tuple(b for b in members if b != left)
        named = Fragment(fragment.first_entry_id, (*members, target))
        self.stored = stored.with_fragment(index, named, TOKEN)
        self.version = Version(self.version + 1)
        self.caught_up += target in members_in_sync(self.stored)
        self.judge_members()
        seen = a.MetadataSeen(self.stored, self.version)
        self.send(lambda: self.notify(seen))
        self.send(self.begin_copy)

    @override
    def store_change(self, changed: LedgerMetadata, version: Version) -> None:
        before = self.stored
        super().store_change(changed, version)
        if self.stored is not before and changed.state is LedgerState.OPEN:
            self.judge_change(before)

    def judge_change(self, before: LedgerMetadata) -> None:
        """Check a change of the last fragment. A replacement that catches up may leave too few
        members in sync: nothing is confirmed until there are enough again.
        """
        least, members = before.quorum.min_in_sync, members_in_sync(self.stored)
        size, size_before = (len(m.last_fragment.ensemble) for m in (self.stored, before))
        if not members:
            raise ViolationError("the last member that was in sync left")
        if len(members) < least and size < size_before:
            raise ViolationError(f"the members shrank to {members}")
        self.judge_members()

    def judge_members(self) -> None:
        """Raise ViolationError if a member counts as in sync that has not caught up."""
        for name in members_in_sync(self.stored):
            held = self.bookies[name].entries
            if not all(entry in held for entry in range(self.acknowledged + 1)):
                raise ViolationError(f"{name} counts as in sync and has not caught up")

    def keep_one_alive(self) -> None:
        """If the stored state depends only on dead bookies, treat one of them as absent instead."""
        sets = [list(f.ensemble) for f in self.stored.fragments]
        if self.stored.state is not LedgerState.CLOSED:
            sets.append(members_in_sync(self.stored))
        for names in sets:
            if names and all(self.bookies[name].is_dead for name in names):
                self.bookies[names[0]].is_dead = False

    @override
    def confirm(self, lac: EntryId, length: int) -> None:
        super().confirm(lac, length)
        stored = self.stored
        alive = [b for b in members_in_sync(stored) if b not in self.writer.parked]
        if stored.state is LedgerState.OPEN and len(alive) < stored.quorum.min_in_sync:
            raise ViolationError(f"{lac} was confirmed with {alive} in sync")

    def is_up(self, name: BookieId) -> bool:
        return not self.bookies[name].is_down

    def make_peace(self) -> None:
        self.odds = Odds(lost=0.0, down=0.0)
        self.keep_one_alive()
        for bookie in self.bookies.values():
            bookie.is_down = bookie.is_dead
        self.report_live_bookies()
        for name in list(self.bookies) * 3:
            if self.is_up(name):
                self.notify(a.MemberReady(name, TOKEN))
            self.report_live_bookies()
        living = [b for b in self.bookies if self.is_up(b)]
        room = min(self.stored.quorum.ensemble_size, len(living))
        if self.check_progress(living) and len(self.writer.in_sync) != room:
            raise ViolationError(f"{self.writer.in_sync} are in sync, {living} live")

    def report_live_bookies(self) -> None:
        """Report to the writer which bookies are dead and which answer; play on until nothing
        happens.
        """
        for name, bookie in self.bookies.items():
            dead = a.BookieFailed(name, a.FailureKind.GONE, "dead")
            self.notify(dead if bookie.is_dead else a.BookieReturned(name))
        self.begin_copy()
        self.run(entries=self.pushed, starting=False)
        self.check_progress(members_in_sync(self.stored))

    def check_progress(self, members: list[BookieId]) -> bool:
        """Return whether enough members live; if so, everything must be confirmed."""
        is_open = self.error is None and self.stored.state is LedgerState.OPEN
        enough = sum(map(self.is_up, members)) >= self.stored.quorum.min_in_sync
        if not is_open or self.is_closing or not enough:
            return False
        if self.acknowledged != self.pushed - 1:
            raise ViolationError(f"stuck at {self.acknowledged} of {self.pushed - 1}: {members}")
        return True


def explore_in_sync(
    quorum: QuorumSpec, seed: int, *, recoverers: int, options: AppendOptions
) -> InSyncModel:
    """Play one in-sync history to its end, without faults at last, and check it."""
    rng = Random(f"in sync {quorum} {recoverers} {options} {seed}")
    model = InSyncModel(quorum, rng, recoverers=recoverers, options=options)
    model.run(entries=rng.randint(0, 12))
    model.make_peace()
    model.recover_in_peace()
    model.check()
    return model

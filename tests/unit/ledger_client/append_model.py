"""Drives the real `AppendProtocol` through random histories: failing bookies, late answers,
ensemble changes whose request is delayed, closes, and recoverers that fence it in the middle.

Leaves bookies, recoverers and most of the judgement to `recovery_model`.

Invariants checked besides: entries are confirmed in order, without gaps; what is confirmed is on an
ack quorum of the ensemble stored at that moment (4.4); nothing is confirmed beyond another's close;
a writer that closed agrees with what is stored; a writer whose bookies live gets on.
"""

from random import Random
from typing import TYPE_CHECKING

from bookie.overriding import override
from bookie.wire.messages import Status
from ledger_client.protocol import append_events as a
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from ledger_client.protocol.quorum import stripe_end, write_set
from metadata.ids import BookieId, EntryId, Version
from metadata.ledger_metadata import LedgerMetadata, QuorumSpec
from tests.scenarios.words import TOKEN
from tests.unit.ledger_client.recovery_model import (
    Model,
    Odds,
    ViolationError,
    size_of,
)

if TYPE_CHECKING:
    from ledger_client.errors import LedgerError

FAILURE_ODDS = 0.08
RETURN_ODDS = 0.3
CLOSE_ODDS = 0.05
NO_SPARE_ODDS = 0.2


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
        self.is_closing = False
        self.counts: dict[EntryId, int] = {}
        self.changes = 0

    # -- what happens to the writer ----------------------------------------------------------------

    @override
    def append(self, count: int) -> None:
        """Let the writer append, or let something go wrong."""
        if self.error is not None or self.written is not None:
            self.pushed += count  # nothing comes of it any more
            return
        if self.rng.random() < FAILURE_ODDS:
            name = self.rng.choice(self.writer.metadata.last_fragment.ensemble)
            kind = self.rng.choice(list(a.FailureKind))
            self.send(lambda: self.tell(a.BookieFailed(name, kind, "drawn")))
        if self.writer.parked and self.rng.random() < RETURN_ODDS:
            back: list[a.AppendEvent] = [a.BookieReturned(self.writer.parked[0]), a.SpareJoined()]
            event = self.rng.choice(back)
            self.send(lambda: self.tell(event))
        if self.rng.random() < CLOSE_ODDS:
            self.send(self.close)
        quorum, first = self.stored.quorum, EntryId(self.pushed)
        count = min(count, stripe_end(quorum, first) - first + 1)
        self.pushed += count
        size = sum(map(size_of, range(first, first + count)))
        self.counts[first] = count
        self.tell(a.BatchAppended(first, count, size))

    def close(self) -> None:
        """Let the caller give up on what is pending."""
        if self.error is None and self.written is None and not self.is_closing:
            self.is_closing = True
            self.tell(a.CloseRequested(TOKEN))

    def tell(self, event: a.AppendEvent) -> None:
        for action in self.writer.handle(event):
            self.do(action)

    def do(self, action: a.AppendAction) -> None:
        match action:
            case a.SendBatch(first, names):
                self.send_batch(first, names)
            case a.Confirm(lac, length):
                self.confirm(lac, length)
            case a.ChooseReplacements():
                self.tell(self.choice(action))
            case a.StoreMetadata(metadata, expected):
                self.send(lambda: self.store_change(metadata, expected))
            case a.FailWriter(error):
                self.error = self.error or error
                if not self.writer.has_ended:
                    self.tell(a.CloseRequested(TOKEN))
            case a.Closed(metadata):
                self.written = metadata
            case a.EnsembleChanged():
                self.changes += 1
            case a.Settle() | a.RecordStretch():
                pass

    def choice(self, action: a.ChooseReplacements) -> a.ReplacementsChosen | a.NoReplacement:
        """Replace as many as there are spares for, as the shell does."""
        taken = {*action.ensemble, *action.excluded}
        spares = [b for b in self.bookies if b not in taken]
        if not spares or self.rng.random() < NO_SPARE_ODDS:
            return a.NoReplacement(len(action.positions), 0, {})
        return a.ReplacementsChosen(dict(zip(action.positions, spares, strict=False)), TOKEN)

    def send_batch(self, first: EntryId, names: tuple[BookieId, ...]) -> None:
        count, lac = self.counts[first], EntryId(min(self.acknowledged, first - 1))
        for name in names:
            self.send(lambda name=name: self.deliver(name, first, count, lac))  # type: ignore[misc]

    def deliver(self, name: BookieId, first: EntryId, count: int, lac: int) -> None:
        if self.is_lost():
            self.tell(a.BookieFailed(name, a.FailureKind.GONE, "lost"))
            return
        status = self.bookies[name].add(first, count, lac, recovery=False)
        if status is Status.OK:
            self.send(lambda: self.tell(a.BatchStored(first, name)))
        else:
            self.send(lambda: self.tell(a.StoreRefused(first, name, status)))

    def confirm(self, lac: EntryId, length: int) -> None:
        """Judge a confirmation at the moment it is made."""
        if lac <= self.acknowledged or length != sum(map(size_of, range(lac + 1))):
            raise ViolationError(f"confirmed {lac} with length {length}")
        stored = self.stored
        if stored.last_entry_id is not None and lac > stored.last_entry_id:
            raise ViolationError(f"{lac} was confirmed beyond the end, {stored.last_entry_id}")
        for entry in range(self.acknowledged + 1, lac + 1):
            entry_id = EntryId(entry)
            replicas = write_set(stored.quorum, stored.fragment_of(entry_id), entry_id)
            copies = sum(entry in self.bookies[name].entries for name in replicas)
            if copies < stored.quorum.ack_quorum:
                raise ViolationError(f"{entry} was confirmed with {copies} copies at {replicas}")
        self.acknowledged = lac

    def store_change(self, changed: LedgerMetadata, version: Version) -> None:
        if version == self.version:
            self.stored, self.version = changed, Version(version + 1)
            if changed.last_entry_id is not None and changed.length is not None:
                self.closes.append((changed.last_entry_id, changed.length))
            event: a.AppendEvent = a.MetadataStored(changed, self.version)
        else:
            event = a.MetadataConflicted(self.stored, self.version)
        self.send(lambda: self.tell(event))

    def check_writer(self) -> None:
        """Raise ViolationError unless the writer came to an end, or confirmed all it was given."""
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
    """Play one history to its end, in peace at last, and check it."""
    rng = Random(f"writer {quorum} {recoverers} {options} {seed}")
    model = WriterModel(quorum, rng, recoverers=recoverers, options=options)
    model.run(entries=rng.randint(0, 12))
    model.check_writer()
    model.recover_in_peace()
    model.check()
    return model

"""Typed events and counters of a running client.

Leaves the meaning of each event to the module that reports it, and exporting to the application.

Invariants: a callback of the application that raises is reported as an event, and to the loop once
for each class of exception; it has no other effect.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from metadata.ids import BookieId, EntryId, LedgerId


@dataclass(frozen=True, slots=True)
class BookieConnected:
    """A connection to a bookie was made, for the first time or again."""

    bookie_id: BookieId
    is_again: bool


@dataclass(frozen=True, slots=True)
class BookieUnreachable:
    """A connection was lost or could not be made."""

    bookie_id: BookieId
    reason: str


@dataclass(frozen=True, slots=True)
class BookieDeparted:
    """A bookie's registration is gone."""

    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class BookieSuspected:
    """A bookie was silent or late while others answered, and is treated as failed (rule 5.7)."""

    ledger_id: LedgerId
    bookie_id: BookieId
    silent_s: float
    """Time for which it has left an add unanswered, or since its last answer if that is shorter."""


@dataclass(frozen=True, slots=True)
class BookieQuarantined:
    """A bookie failed repeatedly and is avoided for a while."""

    bookie_id: BookieId
    until_s: float
    """Loop time at which the quarantine ends."""


@dataclass(frozen=True, slots=True)
class EnsembleChanged:
    """Other bookies store a ledger from an entry on: failed ones were replaced (protocol rule 5.1),
    or, in in-sync mode, members left or came back (11.3).
    """

    ledger_id: LedgerId
    first_entry_id: EntryId
    ensemble: tuple[BookieId, ...]
    replaced: tuple[BookieId, ...]
    """Bookies that left, whether replaced or not."""
    joined: tuple[BookieId, ...] = ()
    """Bookies that joined."""


@dataclass(frozen=True, slots=True)
class LedgerFenced:
    """Another client took a ledger over: its writer here has ended."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class LedgerRecovered:
    """A recovery by this client closed a ledger."""

    ledger_id: LedgerId
    last_entry_id: EntryId


@dataclass(frozen=True, slots=True)
class LedgerUnreadable:
    """A list left out a ledger whose metadata this release cannot read. `quire metadata check`
    finds such ledgers, and `delete_ledger` deletes one.
    """

    ledger_id: LedgerId
    reason: str


@dataclass(frozen=True, slots=True)
class MetadataSessionChanged:
    """The session with the metadata service changed its state."""

    state: str


@dataclass(frozen=True, slots=True)
class MemberCopied:
    """In-sync mode: more of one fragment was copied to a member that catches up (protocol rule
    11.2).
    """

    ledger_id: LedgerId
    bookie_id: BookieId
    fragment_first_entry_id: EntryId
    copied_entries: int
    total_entries: int


@dataclass(frozen=True, slots=True)
class MemberCopyFailed:
    """In-sync mode: a fragment could not be copied to a member that catches up. The copy is tried
    again after a growing pause (protocol rule 9.3).
    """

    ledger_id: LedgerId
    bookie_id: BookieId
    fragment_first_entry_id: EntryId
    reason: str


@dataclass(frozen=True, slots=True)
class MemberCaughtUp:
    """In-sync mode: a member now holds every earlier entry and is in sync."""

    ledger_id: LedgerId
    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class ReplicaDamaged:
    """A bookie returned an entry whose bytes fail their digest; another replica was read."""

    ledger_id: LedgerId
    bookie_id: BookieId
    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class CallbackFailed:
    """A callback of the application raised an exception: `policy`, `on_event` or `on_deleted`. The
    client continues; a policy that raises counts as a shortage of bookies.
    """

    callback: str
    reason: str


ClientEvent = (
    BookieConnected
    | BookieUnreachable
    | BookieDeparted
    | BookieSuspected
    | BookieQuarantined
    | CallbackFailed
    | EnsembleChanged
    | LedgerFenced
    | LedgerRecovered
    | LedgerUnreadable
    | MemberCaughtUp
    | MemberCopied
    | MemberCopyFailed
    | MetadataSessionChanged
    | ReplicaDamaged
)
EventCallback = Callable[[ClientEvent], None]


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Snapshot of a client's counters since it was opened."""

    adds_sent: int
    """Number of sent batches, counted per bookie."""
    add_bytes_sent: int
    calls_sent: int
    """Number of reads, long polls and other requests to bookies."""
    connections_made: int
    connections_failed: int
    """Number of connections that were lost or could not be made."""
    ensemble_changes: int
    suspicions: int
    ledgers_fenced: int
    ledgers_created: int
    ledgers_opened: int
    ledgers_recovered: int
    writers_open: int
    unanswered_bytes: int


class Observer:
    """Counters, and reports to the application. One per client; without a callback, it
    only counts.
    """

    def __init__(self, on_event: EventCallback | None = None) -> None:
        self.adds_sent = 0
        self.add_bytes_sent = 0
        self.calls_sent = 0
        self.connections_failed = 0
        self.ledgers_created = 0
        self.ledgers_opened = 0
        self._on_event = on_event
        self._counts: dict[type[ClientEvent], int] = {}
        self._connected: dict[BookieId, int] = {}
        self._logged: dict[tuple[str, type[Exception]], None] = {}

    def emit(self, event: ClientEvent) -> None:
        """Count an event and pass it to the application."""
        kind = type(event)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - it is reported
            if kind is not CallbackFailed:
                self.note_callback_failed("on_event", error)

    def note_callback_failed(self, callback: str, error: Exception) -> None:
        """Report an exception of a callback of the application: log it once, emit each."""
        key = callback, type(error)
        if key not in self._logged:
            self._logged[key] = None
            context = {"message": f"{callback} raised", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        self.emit(CallbackFailed(callback, f"{type(error).__name__}: {error}"))

    def count(self, kind: type[ClientEvent]) -> int:
        """Return the number of events of a kind."""
        return self._counts.get(kind, 0)

    def snapshot(self, *, writers_open: int = 0, unanswered_bytes: int = 0) -> ClientStats:
        """Return the current counters, together with the client's numbers."""
        return ClientStats(
            adds_sent=self.adds_sent,
            add_bytes_sent=self.add_bytes_sent,
            calls_sent=self.calls_sent,
            connections_made=self.count(BookieConnected),
            connections_failed=self.connections_failed,
            ensemble_changes=self.count(EnsembleChanged),
            suspicions=self.count(BookieSuspected),
            ledgers_fenced=self.count(LedgerFenced),
            ledgers_created=self.ledgers_created,
            ledgers_opened=self.ledgers_opened,
            ledgers_recovered=self.count(LedgerRecovered),
            writers_open=writers_open,
            unanswered_bytes=unanswered_bytes,
        )

    def note_connected(self, bookie_id: BookieId) -> None:
        """Report a new connection."""
        times = self._connected.get(bookie_id, 0)
        self._connected[bookie_id] = times + 1
        self.emit(BookieConnected(bookie_id, is_again=times > 0))

    def note_connection_lost(self, bookie_id: BookieId, reason: str) -> None:
        """Report a connection that was lost or could not be made."""
        self.connections_failed += 1
        self.emit(BookieUnreachable(bookie_id, reason))

"""Decisions about the ledgers of one log: begins the first, rolls to the next, ends the last.

Performs nothing. Leaves the work to `ledger_roller`, and the contents of ledgers to the log.

The first ledger is created when an append wants it, and listed. The next one is created when the
share `early_share` of the open one is written. It takes over when the open one is full. It counts
once the old one is closed and one change of the list has ended the old one and named the new one.

Appends go to the new ledger at once. With `fills_first`, they wait until it is listed and the log
has written its state into it.

Invariants: at most one piece of work is under way; a ledger is listed only after its predecessor is
closed; a created ledger is deleted only while no change of the list can name it; after the end
there are no actions.

Source: topics design, "What a takeover does" (rolling); protocol rules 1.2 and 6.1.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from broker_layer.errors import TopicError

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 2.0


class Work(Enum):
    """Work that waits for other processes. The value completes "cannot ... now"."""

    CREATE = "create a ledger"
    LIST = "list a ledger"
    """Store one change of the list: the end of the draining ledger, if any, and the new ledger, if
    any."""
    FILL = "write the state into a ledger"
    CLOSE = "close a ledger"
    """Stop appends to the open ledger, and close it once all its entries are confirmed."""
    RECOVER = "recover a ledger"
    """Close the draining ledger without its writer, whose close has an unknown outcome."""
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class LedgerWanted:
    """An append waits for the first ledger."""


@dataclass(frozen=True, slots=True)
class LedgerGrown:
    """The open ledger has this share of its size; 1 if it is to be replaced whatever its size. The
    next one, if there is one, can be used or cannot: it has failed, or the replication was changed.
    """

    share: float
    is_next_usable: bool


@dataclass(frozen=True, slots=True)
class EndRequested:
    """The open ledger is to be closed, and none is to follow."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The log has failed, or no caller waits for its end."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The work is done."""


@dataclass(frozen=True, slots=True)
class WorkRefused:
    """The work was not possible, and had no effect. It may be possible later."""

    error: TopicError


RollEvent = LedgerWanted | LedgerGrown | EndRequested | Abandoned | WorkDone | WorkRefused


@dataclass(frozen=True, slots=True)
class StartWork:
    """Start some work after a pause, and report its outcome. No other work is under way."""

    work: Work
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UseNext:
    """Append to the created ledger, from the end of the log on."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Count the entries of the new ledger, which is listed, and drop the draining one."""


@dataclass(frozen=True, slots=True)
class DropNext:
    """Abort the writer of the created ledger, if there is one. Delete the ledger unless it may be
    listed: then the next leader would find it.
    """

    is_listed: bool = False


@dataclass(frozen=True, slots=True)
class RefuseAppends:
    """Refuse the appends that wait for the first ledger."""

    error: TopicError


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Stop the work, and abort the writers of the open and of the draining ledger."""


RollAction = StartWork | UseNext | Complete | DropNext | RefuseAppends | AbortAll


class RollPhase(Enum):
    """State of a log's ledgers."""

    NONE = auto()
    """There is no ledger yet."""
    BEGINNING = auto()
    """The first ledger is created, listed and filled."""
    OPEN = auto()
    """A ledger takes appends. The next one may be created."""
    SWITCHING = auto()
    """The full ledger is closed, and the next one listed and filled."""
    ENDING = auto()
    """The last ledger is closed, and its end listed."""
    ENDED = auto()


class RollProtocol:
    """Decides what a log does next with its ledgers."""

    def __init__(self, *, early_share: float, fills_first: bool) -> None:
        self._early_share = early_share
        self._fills_first = fills_first
        self._phase = RollPhase.NONE
        self._work: Work | None = None
        self._has_next = False
        """Whether the next ledger is created and not used."""
        self._is_ending = False
        self._pause_s = RETRY_FIRST_S

    @property
    def has_ended(self) -> bool:
        """Whether no action follows any more."""
        return self._phase is RollPhase.ENDED

    def is_due(self, share: float) -> bool:
        """Return whether an open ledger of this share of its size makes work."""
        return share >= self._early_share and self._work is None and self._phase is RollPhase.OPEN

    def handle(self, event: RollEvent) -> list[RollAction]:
        """Advance by one event; the caller performs the returned actions in order."""
        actions = [] if self.has_ended else self._advance(event)
        if self._is_ending and self._work is None:
            if self._phase is RollPhase.OPEN:
                self._phase = RollPhase.ENDING
                actions += [*self._drop_next(), self._run(Work.CLOSE)]
            elif self._phase is RollPhase.NONE:
                self._phase = RollPhase.ENDED
        return actions

    def _advance(self, event: RollEvent) -> list[RollAction]:
        match event:
            case LedgerWanted():
                if self._phase is RollPhase.NONE:
                    self._phase = RollPhase.BEGINNING
                    return [self._run(Work.CREATE)]
            case LedgerGrown(share, is_next_usable):
                return self._grow(share, is_next_usable=is_next_usable)
            case EndRequested():
                self._is_ending = True
            case Abandoned():
                self._phase = RollPhase.ENDED
                return [AbortAll(), DropNext(is_listed=self._work in (Work.LIST, Work.FILL))]
            case WorkDone():
                return self._done()
            case WorkRefused(error):
                return self._refused(error)
        return []

    def _run(self, work: Work, after_s: float = 0.0) -> StartWork:
        assert self._work is None, f"{self._work} is under way"
        self._work = work
        return StartWork(work, after_s)

    def _drop_next(self) -> list[RollAction]:
        has_next, self._has_next = self._has_next, False
        return [DropNext()] if has_next else []

    def _grow(self, share: float, *, is_next_usable: bool) -> list[RollAction]:
        """Create the next ledger, or switch over to it, if that is due."""
        if not self.is_due(share):
            return []
        dropped = [] if is_next_usable else self._drop_next()
        if not self._has_next:
            return [*dropped, self._run(Work.CREATE)]
        if share < 1:
            return []
        self._phase, self._has_next = RollPhase.SWITCHING, False
        closing = self._run(Work.CLOSE)
        return [closing] if self._fills_first else [closing, UseNext()]

    def _done(self) -> list[RollAction]:
        work, self._work, self._pause_s = self._work, None, RETRY_FIRST_S
        match work:
            case Work.CREATE if self._phase is RollPhase.OPEN:
                self._has_next = True
                return []
            case Work.CREATE | Work.CLOSE | Work.RECOVER:
                return [self._run(Work.LIST)]
            case Work.LIST if self._phase is RollPhase.ENDING:
                self._phase = RollPhase.ENDED
                return [Complete()]
            case Work.LIST if self._fills_first:
                return [self._run(Work.FILL)]
            case Work.LIST | Work.FILL:
                is_used = self._phase is RollPhase.SWITCHING and not self._fills_first
                self._phase = RollPhase.OPEN
                return [Complete()] if is_used else [UseNext(), Complete()]
            case _:
                return []

    def _refused(self, error: TopicError) -> list[RollAction]:
        work, self._work = self._work, None
        match self._phase:
            case RollPhase.OPEN:  # the open ledger grows, and its next growth makes another attempt
                return [self._run(Work.PAUSE, RETRY_MAX_S)]
            case RollPhase.BEGINNING:
                self._phase = RollPhase.NONE
                refused = RefuseAppends(error)
                return [DropNext(), refused] if work is Work.LIST else [refused]
            case _:
                pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, RETRY_MAX_S)
                return [self._run(Work.LIST if work is Work.LIST else Work.RECOVER, pause_s)]

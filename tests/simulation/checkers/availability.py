"""Checker: a writer gives no error without need, and no append hangs after healing.

The error that ends a writer is judged in the step that decides it, every other one when the caller
receives it. Leaves the decision to `tests.simulation.availability.decision`.

Source: protocol rules 4.7, 5.5, 6.2, 11.4; invariant "every writer with enough bookies progresses".
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from unittest.mock import patch

from typing_extensions import override

from ledger_client import LedgerError, Quorum
from ledger_client.writing.append_shell import AppendShell
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState, QuorumSpec
from tests.simulation.availability.decision import (
    LedgerFacts,
    Setting,
    WriterError,
    is_explained,
    is_late,
)
from tests.simulation.availability.fault_history import FaultHistory
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, Model
from tests.simulation.plan import Plan

APPEND_S: Final = 60.0
"""Time from healing, or from the call, until an append is confirmed or refused."""
IN_SYNC_APPEND_S: Final = 300.0
"""The same for a ledger in in-sync mode: its members may have to catch up first."""
SUPPOSED: Final = ("NotEnoughBookiesError", "QuorumTimeoutError", "MetadataUnavailableError")
"""Errors that faults may explain. All others depend on facts of the ledger alone."""
AT_CHANGE: Final = "NotEnoughBookiesError at a change"
SUPPOSED_EVERY_S: Final = 1.0
FAULTS_SHOWN: Final = 20
"""Number of the latest faults that a report shows."""


@dataclass(slots=True)
class Written:
    """A ledger and its writer."""

    ledger: LedgerModel
    host: str
    quorum: QuorumSpec
    is_ending: bool = False
    """Whether the caller has begun to close the writer, or has left it."""
    has_ended: bool = False
    """Whether the writer has given the error that ended it."""
    rejected: dict[str, None] = field(default_factory=dict)
    """Errors that would have been rejected at some time of its life."""
    supposed_at: float = 0.0


@dataclass(slots=True, eq=False)
class Append:
    """An append, or several, of one call."""

    ledger_id: int
    began: float
    is_alive: Callable[[], bool]
    """Whether the caller's process lives."""


class AvailabilityChecker(Checker):
    """Judges the errors of writers, and the time of appends after healing."""

    name = "availability"

    def __init__(
        self, model: Model, plan: Plan, history: FaultHistory, damaged: dict[str, None]
    ) -> None:
        super().__init__(model)
        self.healed_at: float | None = None
        self._plan = plan
        self._history = history
        self._damaged = damaged
        self._bookies = tuple(f"bookie-{number}" for number in range(plan.bookie_count))
        self._recovered: dict[int, None] = {}
        self._deleted: dict[int, None] = {}
        self._written: dict[int, Written] = {}
        self._appends: dict[Append, None] = {}

    # -- observations ------------------------------------------------------------------------------

    def on_writer(self, ledger: LedgerModel, host: str, quorum: QuorumSpec) -> None:
        """Record that a client writes a ledger."""
        self._written[ledger.ledger_id] = Written(ledger, host, quorum)

    def on_ending(self, ledger_id: int) -> None:
        """Record that the caller closes or leaves a writer."""
        self._written[ledger_id].is_ending = True

    def on_ended(self, ledger_id: int, error: LedgerError) -> None:
        """Judge the error that ends a writer."""
        written = self._written.get(ledger_id)
        if written is not None:
            written.has_ended = True
            limit_s = self._plan.config.append_deadline_s
            self._judge("append", written.host, error, limit_s, self._facts(written), ledger_id)

    def on_append_failed(
        self, ledger_id: int, error: LedgerError, limit_s: float | None, *, has_pending: bool
    ) -> None:
        """Judge an error that an append gave."""
        written = self._written[ledger_id]
        if not written.has_ended:
            facts = replace(self._facts(written), has_pending=has_pending)
            limit_s = self._plan.config.append_deadline_s if limit_s is None else limit_s
            self._judge("append", written.host, error, limit_s, facts, ledger_id)

    def on_create_failed(self, host: str, quorum: Quorum, error: LedgerError) -> None:
        """Judge an error of a creation."""
        limit_s = self._plan.config.call_timeout_s
        self._judge("create", host, error, limit_s, _facts_of(quorum.spec))

    def on_close_failed(self, ledger_id: int, error: LedgerError) -> None:
        """Judge an error of a close."""
        written = self._written[ledger_id]
        if not written.has_ended:
            limit_s, facts = self._plan.config.close_timeout_s, self._facts(written)
            self._judge("close", written.host, error, limit_s, facts, ledger_id)

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now, written = ledger.metadata, self._written.get(ledger.ledger_id)
        if now is None:
            self._deleted[ledger.ledger_id] = None
        if now is None or before is None:
            return
        if now.state is LedgerState.IN_RECOVERY:
            self._recovered[ledger.ledger_id] = None
        is_change = now.state is LedgerState.OPEN and now.last_fragment != before.last_fragment
        if written is not None and is_change:
            self._suppose(written, AT_CHANGE)

    @override
    def on_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        now, written = self.model.loop.now_s, self._written.get(ledger.ledger_id)
        if written is None or now < written.supposed_at + SUPPOSED_EVERY_S:
            return
        written.supposed_at = now
        self._suppose(written, *SUPPOSED)

    # -- results -----------------------------------------------------------------------------------

    @property
    def rejected(self) -> dict[str, int]:
        """Return, by error, the number of writers for which it would have been rejected at some
        time, and the number of all "writers".
        """
        counts = Counter(error for written in self._written.values() for error in written.rejected)
        return {"writers": len(self._written), **counts}

    # -- appends after healing ---------------------------------------------------------------------

    def begin_append(self, ledger_id: int, is_alive: Callable[[], bool]) -> Append:
        """Record the call of an append."""
        append = Append(ledger_id, self.model.loop.now_s, is_alive)
        self._appends[append] = None
        return append

    def end_append(self, append: Append) -> None:
        """Record that an append was confirmed or refused."""
        del self._appends[append]
        self._look_at(append, "ended")

    def on_work_ended(self) -> None:
        """Check that no append of a living process is left, after every client's work has ended."""
        for append in self._appends:
            if append.is_alive():
                self._look_at(append, "has not ended")

    def _look_at(self, append: Append, what: str) -> None:
        quorum = self._written[append.ledger_id].quorum
        sound = len(self._bookies) - len(self._damaged)
        if self.healed_at is None or sound < quorum.ensemble_size:
            return
        bound_s = IN_SYNC_APPEND_S if quorum.is_in_sync else APPEND_S
        now, faults = self.model.loop.now_s, self._history.recent()
        if is_late(append.began, now, self.healed_at, faults, bound_s):
            self.report(
                f"ledger {append.ledger_id}: an append of {append.began:.3f} s {what} more than "
                f"{bound_s} s after the healing at {self.healed_at:.3f} s and the last fault"
            )

    # -- errors ------------------------------------------------------------------------------------

    def _judge(
        self,
        doing: str,
        host: str,
        error: LedgerError,
        limit_s: float,
        facts: LedgerFacts,
        ledger_id: int | None = None,
    ) -> None:
        name = type(error).__name__
        given = WriterError(self.model.loop.now_s, host, name, limit_s, facts)
        faults = self._history.recent()
        if not is_explained(given, faults, self._setting):
            self.report(
                f"ledger {ledger_id}: {doing} of {host} failed without need: {name}: {error}; "
                f"{given}; {self._setting}; {faults[-FAULTS_SHOWN:]}"
            )

    def _suppose(self, written: Written, *names: str) -> None:
        """Record which errors, if the writer gave them now, would be rejected."""
        left = [each for each in names if each not in written.rejected]
        if not left:
            return
        config, now = self._plan.config, self.model.loop.now_s
        limits_s = {SUPPOSED[1]: config.append_deadline_s, SUPPOSED[2]: config.close_timeout_s}
        facts, faults, setting = self._facts(written), self._history.recent(), self._setting
        for name in left:
            error = name.partition(" ")[0]
            given = WriterError(now, written.host, error, limits_s.get(error, 0.0), facts)
            if not is_explained(given, faults, setting):
                written.rejected[name] = None

    def _facts(self, written: Written) -> LedgerFacts:
        ledger, config = written.ledger, self._plan.config
        rate = config.copy_bytes_per_s if written.quorum.is_in_sync else None
        return replace(
            _facts_of(written.quorum),
            copy_s=0.0 if rate is None else sum(map(len, ledger.payloads.values())) / rate,
            fragments=1 if ledger.metadata is None else len(ledger.metadata.fragments),
            was_recovered=ledger.ledger_id in self._recovered,
            is_deleted=ledger.ledger_id in self._deleted,
            is_ending=written.is_ending,
            lags_by_entries=config.replica_lag_messages_max is not None,
        )

    @property
    def _setting(self) -> Setting:
        add_timeout_s = self._plan.config.add_timeout_s
        return Setting(self._bookies, tuple(self._damaged), add_timeout_s)


def _facts_of(quorum: QuorumSpec) -> LedgerFacts:
    least = quorum.min_in_sync if quorum.is_in_sync else None
    return LedgerFacts(quorum.ensemble_size, min_in_sync=least)


@contextmanager
def watched_ends(checker: AvailabilityChecker) -> Iterator[None]:
    """Judge the error that ends a writer in the step that decides it, with or without appends."""
    fail = AppendShell._fail

    def watched(self: AppendShell, error: LedgerError) -> None:
        if self.failure is None:
            checker.on_ended(self.replication.ledger_id, error)
        fail(self, error)

    with patch.object(AppendShell, "_fail", watched):
        yield

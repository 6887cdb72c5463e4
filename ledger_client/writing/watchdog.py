"""Periodic checks of all writers of one client: silence, deadlines, members that return.

Leaves each decision to `protocol.suspicion` and to the writers' protocols. A client that only reads
has a watchdog too, so this module imports no writer.

Source: protocol rules 4.6, 5.6, 5.7 and 11.3.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol

from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.observability import BookieSuspected, Observer
from ledger_client.protocol.suspicion import (
    BookieObservation,
    LateBookies,
    SuspicionBudget,
    SuspicionLimits,
    suspects,
)
from ledger_client.writing.pacing import Call, Slices
from metadata.ids import BookieId, LedgerId

WATCH_PERIOD_S: Final = 0.05
LATE_S: Final = 3.0
"""Time for which a bookie may be late without a pause, though it answers."""
TAIL_PART: Final = 0.99


class CheckSchedule:
    """Times at which the writers of one client are checked next, one for each ledger. Sees no
    clock. Requesting a later time than the known one has no effect.
    """

    def __init__(self) -> None:
        self._due: dict[LedgerId, float] = {}
        self._heap: list[tuple[float, int, LedgerId]] = []
        """Contains each time of `_due`, and times that were replaced by earlier ones."""
        self._numbers = count()

    def add(self, ledger_id: LedgerId, due_s: float) -> None:
        """Request a check at a time, unless an earlier one is requested."""
        known_s = self._due.get(ledger_id)
        if known_s is None or due_s < known_s:
            self._due[ledger_id] = due_s
            heappush(self._heap, (due_s, next(self._numbers), ledger_id))

    def take(self, now: float) -> LedgerId | None:
        """Remove and return the ledger whose check is due first; None if none is due by `now`."""
        while self._heap and self._heap[0][0] <= now:
            due_s, _, ledger_id = heappop(self._heap)
            if self._due.get(ledger_id) == due_s:
                del self._due[ledger_id]
                return ledger_id
        return None


class WatchedWriter(Protocol):
    """A writer, as seen by the watchdog."""

    @property
    def ledger_id(self) -> LedgerId:
        """Id of its ledger."""

    def check(self, now: float) -> float | None:
        """Check deadlines and members. Returns the loop time of the next check, None once nothing
        is left to watch.
        """

    def may_suspect(self, bookie_id: BookieId, *, is_late: bool) -> bool:
        """Return whether the writer waits for this member of its ensemble and a spare could replace
        it; `is_late`: the member answers, but late, and so counts only if each append needs it.
        """

    def suspect(self, bookie_id: BookieId, silent_s: float) -> None:
        """Treat a member as failed."""


class Watchdog:
    """Timer shared by a client's writers. Only writers with pending work are checked, each one when
    it is due, in slices. One round of checks is under way at a time, and one of suspicions for each
    bookie.
    """

    def __init__(
        self, pool: BookiePool, config: ClientConfig, observer: Observer, slices: Slices
    ) -> None:
        self._pool = pool
        self._observer = observer
        self._slices = slices
        self._limits = SuspicionLimits(
            config.suspect_after_min_s,
            config.suspect_after_max_s,
            config.suspect_after_multiple,
            config.suspicions_per_minute_max,
        )
        self._late = LateBookies(round(LATE_S / WATCH_PERIOD_S))
        self._budget = SuspicionBudget(config.suspicions_per_minute_max)
        self._active: dict[LedgerId, WatchedWriter] = {}
        self._schedule = CheckSchedule()
        self._is_checking = False
        self._in_suspicion: dict[BookieId, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0

    def activate(self, writer: WatchedWriter, due_s: float) -> None:
        """Check a writer at a loop time, or at the next period, until `check` returns None."""
        self._active[writer.ledger_id] = writer
        if self._timer is None:
            self._arm()
        self._schedule.add(writer.ledger_id, max(due_s, self._due_at))

    def close(self) -> None:
        """Stop watching."""
        self._active.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_at = loop.time() + WATCH_PERIOD_S
        self._timer = loop.call_at(self._due_at, self._check_all)

    def _check_all(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        # If this process was held up, answers may not be read yet.
        if now - self._due_at < WATCH_PERIOD_S:
            self._act_on_silence(now)
        if not self._is_checking:
            self._is_checking = True
            self._slices.each(self._checks())
        if self._active:
            self._arm()

    def _checks(self) -> Iterator[Call]:
        """Yield the checks that are due."""
        loop = asyncio.get_running_loop()
        while (ledger_id := self._schedule.take(loop.time())) is not None:
            writer = self._active.get(ledger_id)
            if writer is not None:
                yield partial(self._check, writer)
        self._is_checking = False

    def _check(self, writer: WatchedWriter) -> None:
        """Check one writer; if it raises, the next period tries again."""
        now = asyncio.get_running_loop().time()
        next_s: float | None = now + WATCH_PERIOD_S
        try:
            next_s = writer.check(now)
        finally:
            if next_s is None:
                self._active.pop(writer.ledger_id, None)
            else:
                self._schedule.add(writer.ledger_id, max(next_s, self._due_at))

    def _act_on_silence(self, now: float) -> None:
        observed = [self._observe(bookie_id) for bookie_id in self._pool.bookie_ids]
        silent = suspects(observed, now, self._limits)
        late = self._late.note(observed, now, self._limits)
        owing = {o.bookie_id: (o.silent_since, o.oldest_unanswered_since) for o in observed}
        for bookie_id in dict.fromkeys((*silent, *late)):
            if bookie_id not in self._in_suspicion:
                is_late = bookie_id not in silent
                since = owing[bookie_id][is_late]
                assert since is not None, "a suspected bookie owes an answer"
                self._in_suspicion[bookie_id] = None
                calls = self._suspicions(bookie_id, since, now, is_late=is_late)
                self._slices.each(calls)

    def _suspicions(
        self, bookie_id: BookieId, since: float, now: float, *, is_late: bool
    ) -> Iterator[Call]:
        """Yield the suspicions of one bookie by the writers that wait for it."""
        is_allowed = False
        for writer in list(self._active.values()):
            is_suspect = is_late or self._is_silent(bookie_id, since)
            if is_suspect and writer.may_suspect(bookie_id, is_late=is_late):
                is_allowed = is_allowed or self._budget.take(now)
                if not is_allowed:
                    break
                yield partial(self._suspect, writer, bookie_id, now - since)
            else:
                yield _do_nothing
        del self._in_suspicion[bookie_id]

    def _is_silent(self, bookie_id: BookieId, since: float) -> bool:
        """Return whether a bookie has not answered since then."""
        oldest, answered = (
            self._pool.oldest_unanswered_since(bookie_id),
            self._pool.add_answered_at(bookie_id),
        )
        return oldest is not None and oldest <= since and (answered is None or answered <= since)

    def _suspect(self, writer: WatchedWriter, bookie_id: BookieId, silent_s: float) -> None:
        self._observer.emit(BookieSuspected(writer.ledger_id, bookie_id, silent_s))
        writer.suspect(bookie_id, silent_s)

    def _observe(self, bookie_id: BookieId) -> BookieObservation:
        pool = self._pool
        tail = pool.add_latency(bookie_id).quantile(TAIL_PART)
        return BookieObservation(
            bookie_id,
            pool.oldest_unanswered_since(bookie_id),
            pool.add_answered_at(bookie_id),
            tail or 0.0,
        )


def _do_nothing() -> None:
    """Give a slice the opportunity to end."""

"""Periodic check of all writers of one client: silence, deadlines, members that return.

Leaves each decision to `protocol.suspicion` and to the writers' protocols. One timer serves every
writer; only writers with pending work are checked.

Source: protocol rules 4.6, 5.6 and 5.7.
"""

import asyncio
from typing import Final, Protocol

from ledger_client.bookies.pool import BookiePool
from ledger_client.config import ClientConfig
from ledger_client.observability import BookieSuspected, Observer
from ledger_client.protocol.suspicion import (
    BookieObservation,
    SuspicionBudget,
    SuspicionLimits,
    suspects,
)
from metadata.ids import BookieId, LedgerId

WATCH_PERIOD_S: Final = 0.05
TAIL_PART: Final = 0.99


class WatchedWriter(Protocol):
    """A writer, as seen by the watchdog."""

    @property
    def ledger_id(self) -> LedgerId:
        """Id of its ledger."""

    @property
    def check_due_at(self) -> float:
        """Loop time before which a check would find nothing."""

    def check(self, now: float) -> bool:
        """Check deadlines and returned members. Returns False once nothing is left to watch."""

    def may_suspect(self, bookie_id: BookieId) -> bool:
        """Return whether the writer waits for this member of its ensemble and a spare could replace
        it.
        """

    def suspect(self, bookie_id: BookieId, silent_s: float) -> None:
        """Treat a member as failed."""


class Watchdog:
    """Timer shared by a client's writers."""

    def __init__(self, pool: BookiePool, config: ClientConfig, observer: Observer) -> None:
        self._pool = pool
        self._observer = observer
        self._limits = SuspicionLimits(
            config.suspect_after_min_s,
            config.suspect_after_max_s,
            config.suspect_after_multiple,
            config.suspicions_per_minute_max,
        )
        self._budget = SuspicionBudget(config.suspicions_per_minute_max)
        self._active: dict[LedgerId, WatchedWriter] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0

    def activate(self, writer: WatchedWriter) -> None:
        """Watch a writer until its `check` returns False."""
        self._active[writer.ledger_id] = writer
        if self._timer is None:
            self._arm()

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
        if now - self._due_at < WATCH_PERIOD_S:
            self._act_on_silence(
                now
            )  # otherwise this process was held up: answers may not be read yet
        for writer in [w for w in self._active.values() if w.check_due_at <= now]:
            if not self._check(writer, now):
                self._active.pop(writer.ledger_id, None)
        if self._active and self._timer is None:
            self._arm()

    def _check(self, writer: WatchedWriter, now: float) -> bool:
        """Check one writer; if it raises, the others are still checked."""
        try:
            return writer.check(now)
        except Exception as error:  # noqa: BLE001 - it is reported, and the next check tries again
            what = {"message": f"watching ledger {writer.ledger_id}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)
            return True

    def _act_on_silence(self, now: float) -> None:
        observed = [self._observe(bookie_id) for bookie_id in self._pool.bookie_ids]
        silent = {o.bookie_id: o.silent_since for o in observed}
        for bookie_id in suspects(observed, now, self._limits):
            concerned = [w for w in list(self._active.values()) if w.may_suspect(bookie_id)]
            if not concerned or not self._budget.take(now):
                continue
            silent_s = now - (silent[bookie_id] or now)
            for writer in concerned:
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

"""Periodic check of one writer between its appends: deadlines, members that fail or return, sending
the LAC.

Leaves the timer to `watchdog.Watchdog`, and every decision to the append protocol.

Source: protocol rules 4.6, 5.6, 5.7, 8.4, 11.3 and 11.7.
"""

from typing import Final

from ledger_client.bookies.connection_calls import CallFailure
from ledger_client.errors import QuorumTimeoutError
from ledger_client.in_sync.parked_members import ParkedMembers
from ledger_client.protocol import append_events as e
from ledger_client.writing.append_shell import AppendShell, WriterServices
from ledger_client.writing.in_sync_members import InSyncMembers
from ledger_client.writing.stored_watch import StoredWatch
from ledger_client.writing.watchdog import Watchdog
from metadata.ids import BookieId, EntryId

LOOK_SHARE: Final = 0.25
"""Interval between checks of a writer without parked members, as a fraction of the shortest time
that is checked.
"""
LOOK_MAX_S: Final = 0.25
"""Maximum interval between checks."""


class WriterWatch:
    """The part of one writer that the watchdog checks (`watchdog.WatchedWriter`)."""

    def __init__(
        self,
        shell: AppendShell,
        services: WriterServices,
        in_sync: InSyncMembers | None,
        watchdog: Watchdog,
    ) -> None:
        config = services.config
        self.ledger_id: Final = shell.protocol.metadata.ledger_id
        self._shell = shell
        self._services = services
        self._in_sync = in_sync
        self._watchdog = watchdog
        self._is_closed = False
        self._lac_sent = EntryId(-1)
        self._last_sent_at = 0.0
        self.check_due_at = 0.0
        lag_max_s = shell.protocol.metadata.quorum.replica_lag_time_max_ms / 1000
        shortest_s = min(config.lac_delay_s, config.append_deadline_s, lag_max_s)
        self._look_s: Final = min(LOOK_MAX_S, LOOK_SHARE * shortest_s)
        self._parked = ParkedMembers(
            services.pool,
            config.add_timeout_s,
            lambda bookie_id: shell.dispatch(e.BookieReturned(bookie_id)),
        )
        self._unsubscribe = services.pool.on_unavailable(self._on_unavailable)
        is_in_sync = shell.protocol.metadata.quorum.is_in_sync
        self._stored = StoredWatch(shell, services) if is_in_sync else None

    def wake(self) -> None:
        """Start regular checks, soon, until nothing is left to watch."""
        self.check_due_at = 0.0
        if not self._is_closed:
            self._watchdog.activate(self)

    def note_sent(self, now: float) -> None:
        """Record that the writer sent a batch, which carries its LAC."""
        self._last_sent_at = now
        if not self._is_closed:
            self._watchdog.activate(self)

    def check(self, now: float) -> bool:
        """Check deadlines, members and the LAC. Returns False once nothing is left to watch."""
        shell, config = self._shell, self._services.config
        protocol = shell.protocol
        parked = protocol.parked
        self.check_due_at = 0.0 if parked else now + self._look_s
        if self._is_closed or protocol.has_ended or shell.closed.done():
            return False
        oldest = shell.outbox.oldest_appended_at
        if oldest is not None and now - oldest > config.append_deadline_s:
            text = (
                f"{self._waited_for()} within {config.append_deadline_s} s: "
                "check the bookies with `quire cluster health`"
            )
            shell.dispatch(e.WriterFailed(QuorumTimeoutError(text, ledger_id=self.ledger_id)))
            return False
        self._parked.probe(parked, now)
        is_busy = self._in_sync.check(now) if self._in_sync is not None else False
        lac = protocol.lac
        if lac > max(shell.outbox.lac_sent, self._lac_sent):
            if oldest is not None or now - self._last_sent_at < config.lac_delay_s:
                return True
            self._lac_sent = lac
            for bookie_id in protocol.metadata.last_fragment.ensemble:
                self._services.pool.report_lac(bookie_id, self.ledger_id, lac)  # rule 8.4
        return is_busy or oldest is not None or bool(protocol.parked)

    def _waited_for(self) -> str:
        protocol = self._shell.protocol
        metadata = protocol.metadata
        if protocol.lacks_in_sync:
            needed, seen = metadata.quorum.min_in_sync, len(protocol.in_sync)
            return f"{needed} members must be in sync, but only {seen} were"
        needed = metadata.quorum_of(metadata.last_fragment).ack_quorum
        return f"fewer than {needed} bookies stored entry {protocol.lac + 1}"

    def may_suspect(self, bookie_id: BookieId) -> bool:
        """Return whether the writer waits for this member of its ensemble and can do without it."""
        protocol = self._shell.protocol
        if not len(self._shell.outbox):
            return False
        ensemble = protocol.metadata.last_fragment.ensemble
        has_spare = self._services.placement.has_spare(ensemble, excluded={})
        return protocol.may_suspect(bookie_id, has_spare=has_spare)

    def suspect(self, bookie_id: BookieId, silent_s: float) -> None:
        """Treat a member as failed (rule 5.7)."""
        reason = f"silent for {silent_s:.3f} s while others answered"
        self._shell.dispatch(e.BookieFailed(bookie_id, e.FailureKind.SUSPECTED, reason))

    async def aclose(self) -> None:
        """Stop checking, and cancel what is under way."""
        self._is_closed = True
        self._unsubscribe()
        if self._stored is not None:
            self._stored.close()
        await self._parked.aclose()
        if self._in_sync is not None:
            await self._in_sync.aclose()

    def _on_unavailable(self, bookie_id: BookieId, failure: CallFailure, reason: str) -> None:
        # A lost connection is seen by its failed adds; a lost registration only here (5.6).
        if failure is CallFailure.NOT_REGISTERED:
            self._shell.dispatch(e.BookieFailed(bookie_id, e.FailureKind.SUSPECTED, reason))
            self.wake()

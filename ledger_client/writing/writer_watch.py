"""Watch of one writer between its appends: deadlines, members that return, an idle LAC, and the end
of its ledger by another client.

Leaves the timer to `watchdog`, and every decision to the append protocol.

Source: protocol rules 1.4, 4.6, 4.8, 5.6, 5.7, 5.9, 8.4, 11.3 and 11.7.
"""

import math
from functools import partial
from typing import Final

from ledger_client.errors import LedgerNotFoundError, QuorumTimeoutError
from ledger_client.protocol import append_events as e
from ledger_client.writing.append_shell import AppendShell
from ledger_client.writing.in_sync_members import InSyncMembers
from ledger_client.writing.watchdog import Watchdog
from ledger_client.writing.writer_services import WriterServices
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import BookieId, EntryId

READ_AGAIN_S: Final = 2.0
"""Maximum time after a failed read until the next one; half of it is random."""
LOOK_SHARE: Final = 0.25
"""Interval between checks of a writer with unconfirmed entries, as a fraction of the shortest time
that is checked, and later of the age of its oldest entry.
"""
LOOK_MAX_S: Final = 1.0
"""Maximum interval between checks of a writer with unconfirmed entries or parked members."""
LOOK_JITTER: Final = 0.25
"""Part of an interval that is random, so that the checks of many writers spread."""


class StoredWatch:
    """Watch of the metadata of one writer's ledger, from its start to `close`.

    No bookie has to report that another client ended the ledger. A deletion may be over before a
    bookie has the ledger. In in-sync mode, an unclean recovery closes the ledger without the
    members that the writer uses, and while appends are refused nothing is sent. Nothing here delays
    an append; while the metadata service is away, nothing is learned.
    """

    def __init__(self, shell: AppendShell, services: WriterServices) -> None:
        self._shell = shell
        self._services = services
        self._ledger_id = shell.protocol.metadata.ledger_id
        self._is_closed = False
        self._cancel = services.ledgers.watch(self._ledger_id, self._want_read)
        self._want_read()  # the ledger may have changed before the watch was set

    def close(self) -> None:
        """Stop watching."""
        self._is_closed = True
        self._cancel()
        self._services.metadata_reads.cancel(self._ledger_id)

    def _want_read(self) -> None:
        self._services.metadata_reads.want(self._ledger_id, self._read)

    async def _read(self) -> None:
        try:
            stored = await self._services.ledgers.get(self._ledger_id, fresh=True)
        except NodeNotFoundError:
            text = "another client deleted it: continue in a new ledger"
            error = LedgerNotFoundError(text, ledger_id=self._ledger_id)
            self._shell.dispatch(e.WriterFailed(error))
        except MetadataError:
            if not self._is_closed and not self._shell.protocol.has_ended:
                reads = self._services.metadata_reads
                reads.want(self._ledger_id, self._read, READ_AGAIN_S)
        else:
            self._shell.dispatch(e.MetadataSeen(*stored))


class WriterWatch:
    """The part of one writer that the watchdog checks."""

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
        self._next_check_s = math.inf
        self._lac_sent = EntryId(-1)
        self._last_sent_at = 0.0
        lag_max_s = shell.protocol.metadata.quorum.replica_lag_time_max_ms / 1000
        self._limits_s: Final = config.append_deadline_s, lag_max_s
        shortest_s = min(config.lac_delay_s, *self._limits_s)
        self._look_s: Final = min(LOOK_MAX_S, LOOK_SHARE * shortest_s)
        services.news.join(self)
        self._stored = StoredWatch(shell, services)

    def wake(self) -> None:
        """Start regular checks, soon, until nothing is left to watch."""
        self._watch_from(0.0)

    def note_sent(self, now: float) -> None:
        """Record that the writer sent a batch, which carries its LAC."""
        self._last_sent_at = now
        due_s = now + self._look_s
        if due_s < self._next_check_s:
            self._watch_from(due_s)

    def _watch_from(self, due_s: float) -> None:
        if not self._is_closed:
            self._next_check_s = due_s
            self._watchdog.activate(self, due_s)

    def check(self, now: float) -> float | None:
        """Check deadlines, members and the LAC. Returns the loop time of the next check, None once
        nothing is left to watch.
        """
        protocol = self._shell.protocol
        dues: list[float] = []
        if not (self._is_closed or protocol.has_ended or self._shell.closed.done()):
            dues = self._check(now)
        self._next_check_s = min(dues, default=math.inf)
        return self._next_check_s if dues else None

    def _check(self, now: float) -> list[float]:
        """Return the times of further checks."""
        shell, config, dues = self._shell, self._services.config, list[float]()
        oldest = shell.outbox.oldest_appended_at
        if oldest is not None and now - oldest > config.append_deadline_s:
            text = (
                f"{self._waited_for()} within {config.append_deadline_s} s"
                f"{self._failures()}: check the bookies with `quire cluster health`"
            )
            shell.dispatch(e.WriterFailed(QuorumTimeoutError(text, ledger_id=self.ledger_id)))
            return []
        out = shell.protocol.parked
        if not self._services.ledgers.is_connected:
            shell.drop_unsent()
            out = shell.protocol.out  # the change that replaces them waits for a connection
        for bookie_id in out:
            returned = partial(self._take_back, bookie_id)
            self._services.probes.want(bookie_id, self.ledger_id, returned)
        members_due_s = None if self._in_sync is None else self._in_sync.check(now)
        if members_due_s is not None:
            dues.append(members_due_s)
        elif out:
            dues.append(now + self._spread(LOOK_MAX_S))
        if oldest is not None:
            waits_s = min(LOOK_SHARE * (now - oldest), LOOK_MAX_S)
            dues.append(now + max(self._look_s, self._spread(waits_s)))
            dues += [oldest + limit_s for limit_s in self._limits_s if oldest + limit_s > now]
        elif self._has_unsent_lac():
            if now - self._last_sent_at < config.lac_delay_s:
                dues.append(self._last_sent_at + config.lac_delay_s)
            else:
                self._send_lac()
        return dues

    def _spread(self, interval_s: float) -> float:
        return interval_s * (1 - LOOK_JITTER * self._services.rng.random())

    def _take_back(self, bookie_id: BookieId) -> None:
        self._shell.dispatch(e.BookieReturned(bookie_id))
        self._shell.drop_unsent()

    def _has_unsent_lac(self) -> bool:
        return self._shell.protocol.lac > max(self._shell.outbox.lac_sent, self._lac_sent)

    def _send_lac(self) -> None:
        """Send the LAC of an idle writer (rule 8.4)."""
        protocol = self._shell.protocol
        self._lac_sent = protocol.lac
        for bookie_id in protocol.metadata.last_fragment.ensemble:
            self._services.pool.report_lac(bookie_id, self.ledger_id, self._lac_sent)

    def _waited_for(self) -> str:
        protocol = self._shell.protocol
        metadata = protocol.metadata
        if protocol.lacks_in_sync:
            needed, seen = metadata.quorum.min_in_sync, len(protocol.in_sync)
            return f"{needed} members must be in sync, but only {seen} were"
        needed = metadata.quorum_of(metadata.last_fragment).ack_quorum
        return f"fewer than {needed} bookies stored entry {protocol.lac + 1}"

    def _failures(self) -> str:
        """Return why there is no connection to some members, for an error."""
        pool = self._services.pool
        pairs = [(member, pool.failure_of(member)) for member in self.members]
        texts = [f"{bookie}: {why}" for bookie, why in pairs if why]
        return f" ({'; '.join(texts)})" if texts else ""

    def may_suspect(self, bookie_id: BookieId, *, is_late: bool) -> bool:
        """Return whether the writer waits for this member of its ensemble and can do without it.
        A late one matters in quorum mode, at AQ = WQ; in-sync mode has a limit of its own (11.7).
        """
        protocol = self._shell.protocol
        quorum, ensemble = protocol.metadata.quorum, self.members
        needs_all = not quorum.is_in_sync and quorum.ack_quorum == quorum.write_quorum
        if not len(self._shell.outbox) or (is_late and not needs_all):
            return False
        has_spare = self._services.placement.has_spare(ensemble, excluded={})
        return protocol.may_suspect(bookie_id, has_spare=has_spare)

    def suspect(self, bookie_id: BookieId, silent_s: float) -> None:
        """Treat a member as failed (rule 5.7)."""
        reason = f"it left an add unanswered for {silent_s:.3f} s while others answered"
        self._shell.dispatch(e.BookieFailed(bookie_id, e.FailureKind.SUSPECTED, reason))

    @property
    def members(self) -> tuple[BookieId, ...]:
        """The bookies of the last fragment."""
        return self._shell.protocol.metadata.last_fragment.ensemble

    def note_departed(self, bookie_id: BookieId, reason: str) -> None:
        """Request the replacement of a member that left the registration or drains (5.6, 5.8).

        The ledgers of a client take turns to change their metadata. Until its turn, this ledger
        keeps appending to the member.
        """
        if bookie_id not in self._shell.protocol.parked:
            fail = partial(self._fail_departed, bookie_id, reason)
            self._shell.in_turn(f"fail {bookie_id}", fail, urgent=bool(len(self._shell.outbox)))

    def _fail_departed(self, bookie_id: BookieId, reason: str) -> None:
        news, members = self._services.news, self.members
        may_go = news.drains(bookie_id) and self._services.placement.has_spare(members)
        if may_go or news.has_departed(bookie_id):  # it may have come back
            self._shell.dispatch(e.BookieFailed(bookie_id, e.FailureKind.SUSPECTED, reason))
            self.wake()

    def spare_joined(self) -> None:
        """Use a new bookie to replace a failed member, if there is one."""
        self._shell.dispatch(e.SpareJoined())
        self.wake()

    async def aclose(self) -> None:
        """Stop checking, and cancel what is under way."""
        self._is_closed = True
        self._services.news.leave(self)
        self._stored.close()
        self._services.probes.cancel(self.ledger_id)
        if self._in_sync is not None:
            await self._in_sync.aclose()

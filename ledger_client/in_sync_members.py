"""Keeps up the members of one in-sync ledger: who lags leaves, who left comes back, spares join.

Leaves every decision about the stored set to the append protocol, copying to `copying.py`, and
members that failed and could not leave to `parked_members.py`.

A member that left is asked, each period, whether it takes adds again; once it has been away for
`spare_after_s` a spare may take its place. Whoever joins is *catching up* until each older fragment
was copied to it, one after the other, and names it (the metadata then says that it is in sync).

Invariants: one copy is under way at a time; nothing here makes a member leave that the protocol
would not let go.

Source: protocol rules 11.2 and 11.3; KIP-16 for lag by time.
"""

from typing import Final

from ledger_client.append_shell import AppendShell, WriterServices
from ledger_client.connection_calls import BookieCallError
from ledger_client.copy_limits import CopyLimits, CopyProgress
from ledger_client.copying import FragmentCopier
from ledger_client.digest import LedgerKeys
from ledger_client.errors import LedgerError
from ledger_client.observability import MemberCaughtUp, MemberCopied
from ledger_client.placement import Shortage
from ledger_client.protocol import append_events as e
from ledger_client.tasks import BackgroundTasks
from metadata.ids import BookieId
from metadata.ledger_metadata import Fragment, LedgerMetadata

SPARE_WHILE_REFUSING_S: Final = 10.0
"""While appends are refused, a spare is taken after so long, however patient the client is."""
LOOK_PERIOD_S: Final = 1.0
"""How often members that are away are asked, and copies that failed begun again."""


class InSyncMembers:
    """The members of one ledger in in-sync mode, between its appends."""

    def __init__(
        self,
        shell: AppendShell,
        services: WriterServices,
        keys: LedgerKeys,
    ) -> None:
        config = services.config
        self._shell = shell
        self._services = services
        self._report = services.report
        self._lag_max_s = shell.protocol.metadata.quorum.replica_lag_time_max_ms / 1000
        self._away_since: dict[BookieId, float] = {}
        self._looked_at = 0.0
        self._is_copying = False
        self._tasks = BackgroundTasks()
        self._copier = FragmentCopier(
            pool=services.pool,
            ledgers=services.ledgers,
            keys=keys,
            config=config,
            rng=services.rng,
            limits=CopyLimits(bytes_per_s=config.copy_bytes_per_s),
            on_progress=self._on_progress,
        )

    def check(self, now: float) -> bool:
        """Look at who lags, who is away and who catches up; False once nothing is left to do."""
        self._find_lagging(now)
        self._note_away(now)
        is_due = now - self._looked_at >= LOOK_PERIOD_S
        if is_due:
            self._looked_at = now
            self._ask_the_away(now)
        behind = self._next_behind()
        if behind is not None and is_due and not self._is_copying:
            self._is_copying = True
            self._tasks.start(self._catch_up())
        return bool(self._away_since) or self._is_copying or behind is not None

    async def aclose(self) -> None:
        """Give up what is under way: a copy takes its mark off."""
        await self._tasks.aclose()

    # -- leaving ---------------------------------------------------------------------------------

    def _find_lagging(self, now: float) -> None:
        shell, entries_max = self._shell, self._services.config.replica_lag_messages_max
        oldest = shell.outbox.oldest_appended_at
        if oldest is None:
            return
        is_late = now - oldest > self._lag_max_s
        for bookie_id in shell.protocol.metadata.last_fragment.ensemble:
            lag = shell.protocol.lag_entries(bookie_id)
            if lag and is_late:
                reason = f"its oldest unanswered entry is {now - oldest:.3f} s old"
                shell.dispatch(e.BookieFailed(bookie_id, e.FailureKind.LAGGING, reason))
            elif entries_max is not None and lag > entries_max:
                reason = f"it lacks {lag} entries"
                shell.dispatch(e.BookieFailed(bookie_id, e.FailureKind.LAGGING, reason))

    def _note_away(self, now: float) -> None:
        """Know since when each member that left, or should have, is away."""
        protocol = self._shell.protocol
        metadata, parked = protocol.metadata, protocol.parked
        quorum, members = metadata.quorum, metadata.last_fragment.ensemble
        for bookie_id in parked:
            self._away_since.setdefault(bookie_id, now)
        if len(members) < quorum.ensemble_size:
            for bookie_id in _members_before(metadata):
                self._away_since.setdefault(bookie_id, now)
        room = quorum.ensemble_size - len(members) + len(parked)
        self._away_since = {
            bookie_id: since
            for bookie_id, since in self._away_since.items()
            if room and (bookie_id not in members or bookie_id in parked)
        }

    # -- joining ---------------------------------------------------------------------------------

    def _ask_the_away(self, now: float) -> None:
        members = self._shell.protocol.metadata.last_fragment.ensemble
        for bookie_id in self._away_since:
            if bookie_id not in members:
                self._tasks.start(self._ask(bookie_id))
        wait_s = self._services.config.spare_after_s
        if self._shell.protocol.lacks_in_sync:
            wait_s = min(wait_s, SPARE_WHILE_REFUSING_S)
        longest = min(self._away_since.values(), default=now)
        if now - longest >= wait_s:
            self._take_spare()

    async def _ask(self, bookie_id: BookieId) -> None:
        """Take a member back that answers; one that does not is asked again the next time."""
        try:
            answer = await self._services.pool.ping(
                bookie_id, timeout_s=self._services.config.add_timeout_s
            )
        except BookieCallError:
            return
        if answer.writable:
            self._shell.dispatch(e.MemberReady(bookie_id, self._services.token()))

    def _take_spare(self) -> None:
        quorum = self._shell.protocol.metadata.quorum
        members = self._shell.protocol.metadata.last_fragment.ensemble
        away = dict.fromkeys(self._away_since, "it is away")
        absent = next(iter(self._away_since))
        position = members.index(absent) if absent in members else len(members)
        wanted = members if absent in members else (*members, absent)
        chosen = self._services.placement.replacements(quorum, wanted, frozenset((position,)), away)
        if not isinstance(chosen, Shortage):
            self._shell.dispatch(e.MemberReady(chosen[position], self._services.token()))

    # -- catching up -----------------------------------------------------------------------------

    def _next_behind(self) -> tuple[BookieId, Fragment] | None:
        """Return a live member that catches up, and the newest fragment that it lacks."""
        protocol = self._shell.protocol
        metadata, parked = protocol.metadata, protocol.parked
        for bookie_id in metadata.last_fragment.ensemble:
            for fragment in reversed(metadata.fragments[:-1]):
                if bookie_id not in fragment.ensemble and bookie_id not in parked:
                    return bookie_id, fragment
        return None

    async def _catch_up(self) -> None:
        """Copy fragment after fragment, until nobody is behind or a copy fails."""
        protocol, ledger_id = self._shell.protocol, self._shell.protocol.metadata.ledger_id
        try:
            while (behind := self._next_behind()) is not None and not protocol.has_ended:
                target, fragment = behind
                replaces = _replaced_by(protocol.metadata, fragment)
                stored = await self._copier.copy_fragment(
                    ledger_id, fragment.first_entry_id, target, replaces
                )
                self._shell.dispatch(e.MetadataSeen(*stored))
                if target in protocol.in_sync:
                    self._report(MemberCaughtUp(ledger_id, target))
        except LedgerError:
            return  # tried again in the next period, with the metadata of then
        finally:
            self._is_copying = False

    def _on_progress(self, progress: CopyProgress) -> None:
        self._report(
            MemberCopied(
                progress.ledger_id,
                progress.target,
                progress.fragment_first_entry_id,
                progress.copied_entries,
                progress.total_entries,
            )
        )


def _members_before(metadata: LedgerMetadata) -> tuple[BookieId, ...]:
    """Return those that left last and are no members now, as many as there is room for."""
    members = metadata.last_fragment.ensemble
    earlier = (b for f in reversed(metadata.fragments[:-1]) for b in f.ensemble)
    left = dict.fromkeys(b for b in earlier if b not in members)
    return tuple(left)[: metadata.quorum.ensemble_size - len(members)]


def _replaced_by(metadata: LedgerMetadata, fragment: Fragment) -> BookieId | None:
    """Return whose place a copy takes in a full fragment: of one that is no member any more."""
    if len(fragment.ensemble) < metadata.quorum.ensemble_size:
        return None
    members = metadata.last_fragment.ensemble
    return next(b for b in fragment.ensemble if b not in members)

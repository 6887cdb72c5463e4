"""Maintenance of the members of one in-sync ledger: lagging members leave, absent members return,
spares join.

Leaves every decision about the stored set to the append protocol, copying to
`ledger_client.copying`, and members that failed and could not leave to `writer_watch.py`.

Each period checks whether an absent member accepts adds again. Once it has been away for
`spare_after_s`, a spare may take its place. A joining bookie is *catching up* until each older
fragment was copied to it, one after the other, and names it (the metadata then says that it is in
sync). A failed copy may have left its mark; the mark of a bookie that is not a member is removed.

Invariants: one copy runs at a time, and no mark is removed meanwhile; nothing here makes a member
leave that the protocol would keep.

Source: protocol rules 11.2 and 11.3; KIP-16 for lag by time.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ledger_client.bookies.placement import Shortage
from ledger_client.copying import CopyLimits, CopyProgress, CopyServices, FragmentCopier
from ledger_client.digest import LedgerKeys
from ledger_client.errors import LedgerError
from ledger_client.observability import MemberCaughtUp, MemberCopied, MemberCopyFailed
from ledger_client.protocol import append_events as e
from ledger_client.protocol.copy import IncomingMark, stray_marks
from ledger_client.tasks import BackgroundTasks
from ledger_client.writing.append_shell import AppendShell
from ledger_client.writing.writer_services import WriterServices
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata

SPARE_WHILE_REFUSING_S: Final = 10.0
"""Time after which a spare is taken while appends are refused, even if `spare_after_s` is
longer.
"""
LOOK_PERIOD_S: Final = 1.0
"""Minimum time between checks for members to contact and fragments to copy, in seconds."""
LOOK_JITTER_S: Final = 0.25
"""Maximum time that is added to it at random, so that the checks of many ledgers spread."""
COPY_PAUSE_MIN_S: Final = 1.0
COPY_PAUSE_MAX_S: Final = 60.0
ASK_PAUSE_MIN_S: Final = 1.0
ASK_PAUSE_MAX_S: Final = 60.0
STAYED_S: Final = 30.0
"""Time after which a member that came back is treated as one that never left."""


class InSyncMembers:
    """Members of one ledger in in-sync mode, between its appends."""

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
        self._away = AwayMembers()
        self._once_members = dict.fromkeys(shell.protocol.metadata.last_fragment.ensemble)
        """All former and current members, the most recent one last."""
        self._member_since: dict[BookieId, float] = {}
        self._failures = CopyFailures()
        self._look_due_at = 0.0
        self._noted: tuple[LedgerMetadata, list[BookieId], bool] | None = None
        """The metadata, the parked members, and whether appends were refused, when absences were
        recorded last.
        """
        self._steady: LedgerMetadata | None = None
        """The metadata of the last check if all members were in sync then."""
        self._is_copying = False
        self._is_closed = False
        self._tasks = BackgroundTasks()
        self._copier = FragmentCopier(
            services=CopyServices(services.pool, services.ledgers, config, services.rng),
            keys=keys,
            limits=CopyLimits(),
            throttle=services.copy_throttle,
            on_progress=self._on_progress,
        )

    def check(self, now: float) -> float | None:
        """Check which members lag, are away or catch up. Returns the loop time of the next check,
        None when nothing is left to do.
        """
        if self._is_steady():
            self._find_lagging(now)
            return None
        self._note_members(now)
        self._find_lagging(now)
        self._note_away(now)
        if now >= self._look_due_at:
            self._look_due_at = now + LOOK_PERIOD_S + LOOK_JITTER_S * self._services.rng.random()
            self._contact_absent(now)
            self._want_copying(now)
        return self._look_due_at if self._is_busy() else None

    def _is_busy(self) -> bool:
        """Return whether members are missing or catch up; note the metadata if not."""
        metadata, protocol = self._shell.protocol.metadata, self._shell.protocol
        is_busy = len(protocol.in_sync) < metadata.quorum.ensemble_size
        is_busy = is_busy or bool(stray_marks(metadata))
        self._steady = None if is_busy else metadata
        return is_busy

    def _is_steady(self) -> bool:
        """Return whether nothing has changed since a check that found all members in sync. This
        must be fast: a ledger with appends is checked twenty times a second.
        """
        protocol = self._shell.protocol
        if protocol.metadata is not self._steady or protocol.parked:
            return False
        return len(protocol.in_sync) == protocol.metadata.quorum.ensemble_size

    async def aclose(self) -> None:
        """Cancel what is under way; a copy removes its mark."""
        self._is_closed = True
        await self._tasks.aclose()

    # -- leaving ---------------------------------------------------------------------------------

    def _note_members(self, now: float) -> None:
        """Record since when each member has been one."""
        members = self._shell.protocol.metadata.last_fragment.ensemble
        self._member_since = {b: self._member_since.get(b, now) for b in members}

    def _find_lagging(self, now: float) -> None:
        shell, entries_max = self._shell, self._services.config.replica_lag_messages_max
        oldest = shell.outbox.oldest_appended_at
        if oldest is None or (entries_max is None and now - oldest <= self._lag_max_s):
            return
        for bookie_id in shell.protocol.metadata.last_fragment.ensemble:
            lag = shell.protocol.lag_entries(bookie_id)
            late_s = now - max(oldest, self._member_since[bookie_id])
            reason = ""
            if lag and late_s > self._lag_max_s:
                reason = f"its oldest unanswered entry is {late_s:.3f} s old"
            elif entries_max is not None and lag > entries_max:
                reason = f"it lacks {lag} entries"
            if reason:
                shell.dispatch(e.BookieFailed(bookie_id, e.FailureKind.LAGGING, reason))

    def _note_away(self, now: float) -> None:
        """Record since when each member that left, or should have left, is away."""
        protocol = self._shell.protocol
        metadata, parked = protocol.metadata, list(protocol.parked)
        noted = metadata, parked, protocol.lacks_in_sync
        if self._noted == noted:
            return
        self._noted = noted
        members = metadata.last_fragment.ensemble
        room = metadata.quorum.ensemble_size - len(members)
        # The metadata does not record members that left before the first entry.
        for bookie_id in members:
            self._once_members.pop(bookie_id, None)
            self._once_members[bookie_id] = None
        left = tuple(b for b in reversed(self._once_members) if b not in members)[:room]
        if not room and protocol.lacks_in_sync:  # a member that is back may change places again
            left = tuple(b for b in metadata.fragments[0].ensemble if b not in members)
        self._away.note([*parked, *left], members, now)

    # -- joining ---------------------------------------------------------------------------------

    def _contact_absent(self, now: float) -> None:
        members = self._shell.protocol.metadata.last_fragment.ensemble
        for bookie_id in self._away.due(now):
            if bookie_id not in members:
                ledger_id = self._shell.protocol.metadata.ledger_id
                returned = partial(self._take_back, bookie_id)
                self._services.probes.want(bookie_id, ledger_id, returned)
        wait_s = self._services.config.spare_after_s
        if self._shell.protocol.lacks_in_sync:
            wait_s = min(wait_s, SPARE_WHILE_REFUSING_S)
        if self._away.bookie_ids and self._away.longest_s(now) >= wait_s:
            self._take_spare()

    def _take_back(self, bookie_id: BookieId) -> None:
        """Take back a member that answered, if it is still away. Nothing would be confirmed until
        the change is stored, so it waits for a connection to the metadata service.
        """
        is_connected = self._services.ledgers.is_connected
        if is_connected and not self._is_closed and bookie_id in self._away.bookie_ids:
            self._join_in_turn(bookie_id)

    def _join_in_turn(self, bookie_id: BookieId) -> None:
        shell = self._shell
        joined = partial(shell.dispatch, e.MemberReady(bookie_id, self._services.token()))
        shell.in_turn(f"join {bookie_id}", joined, urgent=shell.protocol.lacks_in_sync)

    def _take_spare(self) -> None:
        quorum = self._shell.protocol.metadata.quorum
        members = self._shell.protocol.metadata.last_fragment.ensemble
        away = dict.fromkeys(self._away.bookie_ids, "it is away")
        away |= dict.fromkeys(self._shell.protocol.false_fences, "it fences the ledger")
        absent = self._away.bookie_ids[0]
        position = members.index(absent) if absent in members else len(members)
        wanted = members if absent in members else (*members, absent)
        chosen = self._services.placement.replacements(quorum, wanted, frozenset((position,)), away)
        if not isinstance(chosen, Shortage):
            self._join_in_turn(chosen[position])

    # -- catching up -----------------------------------------------------------------------------

    def _next_behind(self, now: float) -> tuple[BookieId, Fragment] | None:
        protocol = self._shell.protocol

        def may_copy(first: EntryId, target: BookieId) -> bool:
            return target not in protocol.parked and self._failures.may_try(first, target, now)

        return next_behind(protocol.metadata, may_copy)

    def _next_stray(self, now: float) -> IncomingMark | None:
        marks = stray_marks(self._shell.protocol.metadata)
        may_try = self._failures.may_try
        return next((m for m in marks if may_try(m.first_entry_id, m.target, now)), None)

    def _has_copying_to_do(self, now: float) -> bool:
        return self._next_behind(now) is not None or self._next_stray(now) is not None

    def _want_copying(self, now: float) -> None:
        """Copy a fragment, or remove a stray mark, when it is this ledger's turn."""
        is_over = self._shell.protocol.has_ended
        if not is_over and not self._is_copying and self._has_copying_to_do(now):
            self._is_copying = True
            ledger_id = self._shell.protocol.metadata.ledger_id
            urgent = self._shell.protocol.lacks_in_sync
            self._services.copy_turns.want((ledger_id, "copy"), self._begin_copying, urgent=urgent)

    def _begin_copying(self) -> None:
        if not self._is_closed:
            self._services.copy_turns.count(self._tasks.start(self._catch_up()))

    async def _catch_up(self) -> None:
        """Copy one fragment, or else remove a stray mark; want another turn if that succeeded."""
        loop = asyncio.get_running_loop()
        try:
            behind = self._next_behind(loop.time())
            if behind is not None:
                is_done = await self._copy(*behind)
            else:
                stray = self._next_stray(loop.time())
                is_done = stray is not None and await self._remove(stray)
        finally:
            self._is_copying = False
        if is_done:
            self._want_copying(loop.time())

    async def _copy(self, target: BookieId, fragment: Fragment) -> bool:
        """Copy one fragment to a member; return whether the writer's metadata shows that it holds
        it.
        """
        protocol = self._shell.protocol
        ledger_id, first = protocol.metadata.ledger_id, fragment.first_entry_id
        replaces = replaced_by(protocol.metadata, fragment)
        try:
            stored = await self._copier.copy_fragment(ledger_id, first, target, replaces)
        except LedgerError as error:
            self._failures.note(first, target, asyncio.get_running_loop().time())
            self._report(MemberCopyFailed(ledger_id, target, first, str(error)))
            return False
        self._failures.clear(first, target)
        self._shell.dispatch(e.MetadataSeen(*stored))
        if target in protocol.in_sync:  # it was not when the copy began
            self._report(MemberCaughtUp(ledger_id, target))
        return target in protocol.metadata.fragment_of(first).ensemble

    async def _remove(self, mark: IncomingMark) -> bool:
        """Remove a stray mark; return whether the writer's metadata shows that it is gone."""
        first, target = mark.first_entry_id, mark.target
        try:
            stored = await self._copier.remove_stray(mark)
        except LedgerError:
            self._failures.note(first, target, asyncio.get_running_loop().time())
            return False
        self._failures.clear(first, target)
        self._shell.dispatch(e.MetadataSeen(*stored))
        return mark not in stray_marks(self._shell.protocol.metadata)

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


def next_behind(
    metadata: LedgerMetadata, may_copy: Callable[[EntryId, BookieId], bool]
) -> tuple[BookieId, Fragment] | None:
    """Return a member that catches up, and the newest fragment that it lacks and that may be copied
    to it now.
    """
    for bookie_id in metadata.last_fragment.ensemble:
        for fragment in metadata.fragments_without(bookie_id):
            if may_copy(fragment.first_entry_id, bookie_id):
                return bookie_id, fragment
    return None


def replaced_by(metadata: LedgerMetadata, fragment: Fragment) -> BookieId | None:
    """Return the bookie whose place a copy takes in a full fragment: one that is no longer a
    member.
    """
    if len(fragment.ensemble) < metadata.quorum.ensemble_size:
        return None
    members = metadata.last_fragment.ensemble
    return next(b for b in fragment.ensemble if b not in members)


class CopyFailures:
    """Times at which failed copies may be tried again: after a pause that grows each time."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[EntryId, BookieId], tuple[float, float]] = {}

    def may_try(self, first: EntryId, target: BookieId, now: float) -> bool:
        """Return whether a fragment may be copied to a target now."""
        _, until_s = self._pauses.get((first, target), (COPY_PAUSE_MIN_S, now))
        return now >= until_s

    def note(self, first: EntryId, target: BookieId, now: float) -> None:
        """Record a failure."""
        before, _ = self._pauses.get((first, target), (COPY_PAUSE_MIN_S / 2, now))
        pause_s = min(2 * before, COPY_PAUSE_MAX_S)
        self._pauses[first, target] = pause_s, now + pause_s

    def clear(self, first: EntryId, target: BookieId) -> None:
        """Record a success."""
        self._pauses.pop((first, target), None)


@dataclass(slots=True)
class _Absence:
    since: float
    ask_at: float
    pause_s: float = ASK_PAUSE_MIN_S
    back_at: float | None = None

    def has_stayed(self, now: float) -> bool:
        """Return whether the member came back so long ago that this absence does not count."""
        return self.back_at is not None and now - self.back_at >= STAYED_S


class AwayMembers:
    """Absences of one ledger's members.

    Sees no clock: `now` is the loop time. A member that comes back and leaves again is contacted
    less and less often, and counts as away since it first left. So a member that answers pings but
    stores nothing is finally replaced by a spare.
    """

    def __init__(self) -> None:
        self._absences: dict[BookieId, _Absence] = {}

    def note(self, absent: Sequence[BookieId], members: Collection[BookieId], now: float) -> None:
        """Record which bookies are absent now; `members` may contain some of them."""
        for bookie_id in [b for b, known in self._absences.items() if known.has_stayed(now)]:
            del self._absences[bookie_id]
        for bookie_id in absent:
            known = self._absences.setdefault(bookie_id, _Absence(now, now))
            if known.back_at is not None:
                known.back_at = None
                known.pause_s = min(2 * known.pause_s, ASK_PAUSE_MAX_S)
                known.ask_at = now + known.pause_s
        for bookie_id in [b for b in self._absences if b not in absent]:
            known = self._absences[bookie_id]
            if bookie_id not in members:
                del self._absences[bookie_id]
            elif known.back_at is None:
                known.back_at = now

    @property
    def bookie_ids(self) -> list[BookieId]:
        """Bookies that are away now, the one that left first at the front."""
        return [b for b, known in self._absences.items() if known.back_at is None]

    def due(self, now: float) -> list[BookieId]:
        """Return the bookies to contact now, each at most once per pause."""
        due = [b for b in self.bookie_ids if self._absences[b].ask_at <= now]
        for bookie_id in due:
            self._absences[bookie_id].ask_at = now + self._absences[bookie_id].pause_s
        return due

    def longest_s(self, now: float) -> float:
        """Return the longest current absence, in seconds."""
        return max((now - self._absences[b].since for b in self.bookie_ids), default=0.0)

"""Auditor: finds the ledgers that need repair, and publishes them as jobs.

Invariants: only the elected process publishes; a second one for a moment does no harm, because
workers decide by the metadata. A metadata service that does not answer proves nothing: the last
known state stays. A record that this release cannot read is left out. Each pass over all ledgers is
followed by a pause of at least PASS_REST times its length. New ledgers are found by their ids among
all others, since several blocks of ids are in use at once.

Source: protocol rules 9.1, 9.3, 9.8 and 9.12, 9.13 and 9.16; docs/repair.md, "The auditor".
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from ledger_client.bookies.pool import BookiePool
from metadata.backoff import Backoff
from metadata.errors import (
    InvalidLifecycleChangeError,
    MetadataError,
    MetadataFormatError,
    NodeNotFoundError,
)
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import INSTANCE
from metadata.registry.cookies import CookieStore
from metadata.registry.directory import BookieDirectory
from metadata.repair.job_store import JOBS_MAX, JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import Lifecycles, LifecycleStore
from metadata.repair.scrub import BadRange
from metadata.repair.scrub_store import Scrubs
from metadata.repair.settings_store import RepairSettingsView
from metadata.repair.status import AwayBookie, BlockedTotal, RepairStatus, UrgencyTotal
from metadata.repair.status_store import StatusStore
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import MetadataStore
from quire.repair.departures import Delays, Departures, DeparturesSeen, StateChange
from quire.repair.ledger_index import RepairPlan
from quire.repair.ledger_reads import (
    DamagedLedgers,
    LedgerReads,
    OrderlyStops,
    UnnamedBookies,
    call_each,
)
from quire.repair.missing_copies import MissingCopies
from quire.repair.needs import RepairClass
from quire.repair.publishing import REQUESTED, Changes, Progress, Retries, SetAside, publication
from quire.repair.spread import NO_PLACES, places_of
from quire.repair.standing import Standings
from quire.server.server_log import ServerLog, loop_time

LOOK_EVERY_S: Final = 5.0
"""Maximum time between two looks."""
PASS_EVERY_S: Final = 600.0
PASS_AGAIN_S: Final = 60.0
"""Pause after a pass that failed. The index goes on, with what the last complete one found."""
CATCH_UP_EVERY_S: Final = 60.0
"""Pause between two reads of new and open ledgers. An open ledger may have closed without some of
its copies, and a bookie that is gone, drains or is in limbo may be in the ensemble of a new one.
"""
PASS_REST: Final = 19.0
"""Passes, and these reads, take at most one twentieth of the time each."""
STATUS_AGE_MS_MAX: Final = 60_000
"""Maximum age of the stored summary while it does not change."""
FAILURES_LOGGED: Final = 20
"""Number of failed looks in a row, about half a minute, after which the log says so once."""
SETTLE_S: Final = 0.5
"""Pause after a change, so that changes that come together are looked at once."""
_log = ServerLog(loop_time)


@dataclass(frozen=True, slots=True)
class AuditorParts:
    """What an auditor reads, follows and writes."""

    store: MetadataStore
    ledgers: LedgerStore
    cookies: CookieStore
    directory: BookieDirectory
    lifecycles: Lifecycles
    lifecycle_store: LifecycleStore
    settings: RepairSettingsView
    jobs: JobStore
    status: StatusStore
    scrubs: Scrubs
    pool: BookiePool
    wall_clock_ms: Callable[[], int]


class Auditor:
    """The work of the elected auditor, from `run` until it is cancelled."""

    def __init__(self, parts: AuditorParts, auditor_id: str, rng: Random) -> None:
        self._store = parts.store
        self._cookies = parts.cookies
        self._directory = parts.directory
        self._lifecycles = parts.lifecycles
        self._lifecycle_store = parts.lifecycle_store
        self._settings = parts.settings
        self._jobs = parts.jobs
        self._status = parts.status
        self._scrubs = parts.scrubs
        self._wall_clock_ms = parts.wall_clock_ms
        self._auditor_id = auditor_id
        self._rng = rng
        self._wake = asyncio.Event()
        self._missing = MissingCopies(parts.ledgers, parts.pool, parts.directory, self._wake.set)
        self._index = self._missing.index
        self._pass = LedgerReads(parts.ledgers, self._index)
        self._damaged = DamagedLedgers(parts.ledgers, self._pass.put)
        self._unnamed = UnnamedBookies(parts.cookies, self._index)
        self._stops = OrderlyStops(parts.store)
        self._departures = Departures()
        self._progress = Progress()
        self._published: dict[JobName, Job] = {}
        self._tried: set[LedgerId] = set()
        """Ledgers that workers have repaired, or tried to, and that are to be read again."""
        self._is_to_announce = False
        """Whether this look may have queued a job."""
        self._standings: Standings | None = None
        self._changes = Changes()
        self._retries = Retries()
        self._set_aside = SetAside()
        self._since_ms = 0
        self._audited_ms: int | None = None
        self._next_pass_s = 0.0
        self._next_catch_up_s = 0.0
        self._written = RepairStatus(auditor_id, 0, None, 0)

    async def run(self) -> None:
        """Audit until cancelled."""
        comparing = asyncio.get_running_loop().create_task(self._missing.run())
        try:
            await self._audit(comparing)
        finally:
            comparing.cancel()

    async def _audit(self, comparing: asyncio.Task[None]) -> None:
        """Audit until cancelled, or until the comparison of copies fails."""
        self._since_ms = self._wall_clock_ms()
        backoff = Backoff(self._rng)
        cancels = [
            self._directory.on_event(lambda _: self._wake.set()),
            self._lifecycles.on_change(lambda _: self._wake.set()),
            self._settings.on_change(self._wake.set),
            self._jobs.watch(self._wake.set),
            self._scrubs.on_bad_change(self._wake.set),
        ]
        try:
            while not comparing.done():
                self._wake.clear()
                try:
                    due_s = await self._look()
                    backoff.count = 0
                except MetadataError as error:
                    due_s = asyncio.get_running_loop().time() + backoff.next_s()
                    if backoff.count == FAILURES_LOGGED:
                        _log.warning("audit delayed", reason=str(error))
                await asyncio.sleep(SETTLE_S)
                await self._wait_until(due_s)
            comparing.result()
        finally:
            for cancel in cancels:
                cancel()

    async def _wait_until(self, due_s: float | None) -> None:
        now_s = asyncio.get_running_loop().time()
        wait_s = LOOK_EVERY_S if due_s is None else min(LOOK_EVERY_S, max(0.0, due_s - now_s))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    async def _look(self) -> float | None:
        """Look at bookies, jobs and ledgers once; return the time of the next change by itself."""
        loop = asyncio.get_running_loop()
        await self._pass_if_due(loop.time())
        known = dict.fromkeys([*await self._cookies.list_bookie_ids(), *self._index.named])
        up = dict(self._directory.bookies)
        states = {id_: record.state for id_, record in self._lifecycles.records.items()}
        stopped = await self._stops.among(known, up, states)
        seen = self._departures.look(known, up, states, stopped, self._delays, loop.time())
        for change in seen.changes:
            await self._change(change)
        await self._follow_jobs(loop.time())
        await self._catch_up_if_due(seen.standings, loop.time())
        reports = self._reports(seen.standings)
        damaged = await self._damaged.read(reports)
        self._missing.follow(seen.standings, self._settings.settings, self._wall_clock_ms())
        missing = self._missing.read()
        self._pass.changed |= self._changes.of_ledgers(reports, missing)
        moves = self._settings.settings.move_misplaced
        places = places_of(up, seen.standings) if moves else NO_PLACES
        set_aside = self._set_aside.ledgers
        plan = self._index.plan(
            seen.standings, seen.urgent, JOBS_MAX, damaged, missing, places, set_aside
        )
        await self._publish(plan, seen)
        await self._note_unnamed(states)
        await self._write_status(plan, self._departures.away(seen.standings), loop.time())
        return seen.due_s

    async def _pass_if_due(self, now_s: float) -> None:
        if now_s < self._next_pass_s:
            return
        try:
            await self._pass.read_all()
        except MetadataError:
            if self._audited_ms is None:
                raise  # the index is not complete yet
            self._next_pass_s = now_s + PASS_AGAIN_S
            return
        if self._pass.unreadable_count:
            count = self._pass.unreadable_count
            _log.warning("ledgers unreadable", ledgers=count, try_next="quire metadata check")
        loop = asyncio.get_running_loop()
        length_s = loop.time() - now_s
        self._next_pass_s = loop.time() + max(PASS_EVERY_S, PASS_REST * length_s)
        if self._audited_ms is None:
            _log.info("first audit ended", auditor=self._auditor_id, seconds=round(length_s, 1))
        self._audited_ms = self._wall_clock_ms()
        self._damaged.forget()
        self._missing.compare_again()

    async def _catch_up_if_due(self, standings: Standings, now_s: float) -> None:
        """Read what the index may lack: new ledgers, and what happened to open ones."""
        if standings == self._standings and now_s < self._next_catch_up_s:
            return
        # A server that lags could miss a ledger: no list of this session is older than this read.
        await self._store.get(INSTANCE, agreed=True)
        await self._pass.catch_up()
        self._standings = standings
        loop = asyncio.get_running_loop()
        length_s = loop.time() - now_s
        self._next_catch_up_s = loop.time() + max(CATCH_UP_EVERY_S, PASS_REST * length_s)

    def _reports(self, standings: Standings) -> dict[BookieId, tuple[BadRange, ...]]:
        """Return the damaged ranges of the bookies that are up and whose other copies count. A
        bookie that drains gets no good copy: what it holds is copied elsewhere.
        """
        return {
            bookie_id: record.bad
            for bookie_id, record in self._scrubs.records.items()
            if record.bad and bookie_id in self._directory.bookies and standings.has_copy(bookie_id)
        }

    @property
    def _delays(self) -> Delays:
        settings = self._settings.settings
        return Delays(settings.lost_after_s, min(settings.urgent_after_s, settings.lost_after_s))

    async def _change(self, change: StateChange) -> None:
        _log.info(
            "bookie state changed",
            bookie=change.bookie_id,
            state=str(change.to),
            reason=change.reason,
        )
        now_ms = self._wall_clock_ms()
        with contextlib.suppress(InvalidLifecycleChangeError):  # an operator was faster
            await self._lifecycle_store.change(
                change.bookie_id, change.to, change.reason, now_ms, before=change.before
            )

    # -- jobs --------------------------------------------------------------------------------------

    async def _follow_jobs(self, now_s: float) -> None:
        """Read new jobs, and the ledgers of those that workers have done."""
        names = dict.fromkeys(await self._jobs.published())
        done = [name for name in self._published if name not in names]
        for name in done:
            del self._published[name]
            self._progress.add(name.size_bytes, now_s)
            self._tried.add(name.ledger_id)
        self._damaged.forget([name.ledger_id for name in done])
        self._missing.forget([name.ledger_id for name in done])
        known = self._published
        unread = [n for n in names if n not in known or known[n].state is JobState.QUEUED]
        self._missing.compare_soon([n.ledger_id for n in names if n not in known])
        await call_each(unread, self._read_job)
        tried = frozenset(self._tried)
        await self._pass.read(tried)
        self._tried -= tried

    async def _read_job(self, name: JobName) -> None:
        with contextlib.suppress(NodeNotFoundError, MetadataFormatError):
            job = self._published[name] = (await self._jobs.get(name))[0]
            if job.state is JobState.BLOCKED:  # some of its needs may be met
                self._tried.add(name.ledger_id)

    async def _publish(self, plan: RepairPlan, seen: DeparturesSeen) -> None:
        now_s = asyncio.get_running_loop().time()
        is_changed = self._changes.of_cluster(self._directory.bookies, seen.standings.by_bookie)
        changed = self._pass.changed
        self._set_aside.bring_back(changed, is_cluster_changed=is_changed)
        due = self._retries.look(self._published, changed, now_s, is_cluster_changed=is_changed)
        try:
            await call_each(due, self._queue_again)
            lacks_copies = not all(map(seen.standings.has_copy, seen.standings.by_bookie))
            urgency = RepairClass.SHORT_OF_WRITE_QUORUM if lacks_copies else RepairClass.DRAINING
            now_ms = self._wall_clock_ms()
            changes = publication(plan, urgency, self._published, now_ms, JOBS_MAX)
            await call_each(changes.remove, self._remove_job)
            await call_each(changes.publish, self._publish_job)
        finally:
            if self._is_to_announce:
                self._is_to_announce = False
                await self._jobs.announce()
        aside = self._set_aside.look(self._retries.waiting(self._published))
        await call_each(aside, self._remove_job)
        changed.clear()

    async def _remove_job(self, name: JobName) -> None:
        """Remove a job, unless an operator has requested it since it was read."""
        known = self._published.pop(name, None)
        with contextlib.suppress(NodeNotFoundError, MetadataFormatError):
            job, version = await self._jobs.get(name)
            if REQUESTED in job.reasons and (known is None or REQUESTED not in known.reasons):
                self._published[name] = job
            else:
                await self._jobs.remove(name, version)

    async def _publish_job(self, job: Job) -> None:
        now_s = asyncio.get_running_loop().time()
        self._is_to_announce = True
        await self._jobs.publish(job)
        _log.info("repair wanted", ledger=job.ledger_id, reasons=", ".join(job.reasons))
        self._retries.note_queued(job.name, now_s)
        self._published[job.name] = job

    async def _queue_again(self, name: JobName) -> None:
        """Queue a blocked job, unless an operator has done so since it was read."""
        with contextlib.suppress(NodeNotFoundError, MetadataFormatError):
            now_s = asyncio.get_running_loop().time()
            job, version = await self._jobs.get(name)
            if job.state is JobState.BLOCKED:
                job = Job(name, job.reasons, job.since_ms)
                self._is_to_announce = True
                if await self._jobs.change(job, version) is None:
                    return
                self._retries.note_queued(name, now_s)
            self._published[name] = job

    # -- drained bookies, and the summary ----------------------------------------------------------

    async def _note_unnamed(self, states: Mapping[BookieId, Lifecycle]) -> None:
        """Store which bookies are drained, or never started, after one more pass that finds no
        ledger that names them. A ledger that could not be read may name one: then the next pass
        decides, and so it does while restored metadata may lack ledgers.
        """
        changes = await self._unnamed.changes(states, self._wall_clock_ms())
        if not changes or self._pass.unreadable_count or await is_unaccepted(self._store):
            return
        for change in changes:
            if change.to is Lifecycle.REMOVED:  # it takes no entries from before the pass on
                await self._change(replace(change, to=Lifecycle.DRAINED))
        # A server that lags, or whose leader was replaced, could miss a ledger: none of this
        # session's reads is older than this one.
        await self._store.get(INSTANCE, agreed=True)
        await self._pass.read_all()
        for change in changes:
            is_complete, now_ms = not self._pass.unreadable_count, self._wall_clock_ms()
            confirmed = await self._unnamed.confirmed(change, now_ms, is_complete=is_complete)
            if confirmed is not None:
                await self._change(confirmed)

    async def _write_status(
        self, plan: RepairPlan, away: Mapping[BookieId, float], now_s: float
    ) -> None:
        """Write the summary if it changed, or is old. Bookies that leave or return are no change:
        registrations show that at once.
        """
        left = sum(
            total.byte_count for kind, total in plan.totals.items() if kind != RepairClass.LOST
        )
        eta_s = self._progress.left_s(left, now_s)
        blocked = Counter(
            job.blocked_reason
            for job in self._published.values()
            if job.blocked_reason and job.state is not JobState.LOST
        )
        blocked += self._set_aside.reasons
        lost = plan.totals.get(RepairClass.LOST)
        status = RepairStatus(
            auditor_id=self._auditor_id,
            since_ms=self._since_ms,
            audited_ms=self._audited_ms,
            written_ms=self._written.written_ms,
            totals=tuple(
                UrgencyTotal(urgency, total.ledgers, total.byte_count)
                for urgency, total in plan.totals.items()
            ),
            bytes_left=left,
            bytes_per_s=round(self._progress.rate(now_s)),
            eta_s=None if eta_s is None else math.ceil(eta_s),
            blocked=tuple(BlockedTotal(why, count) for why, count in blocked.items()),
            lost_ledgers=0 if lost is None else lost.ledgers,
            away=self._written.away,
        )
        now_ms = self._wall_clock_ms()
        if status != self._written or now_ms - status.written_ms > STATUS_AGE_MS_MAX:
            seen = tuple(
                AwayBookie(bookie, now_ms - round(1000 * (now_s - since)))
                for bookie, since in away.items()
            )
            self._written = replace(status, written_ms=now_ms, away=seen)
            await self._status.put(self._written)

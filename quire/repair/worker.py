"""Worker: claims published jobs in their order and repairs the ledgers, several at a time.

Invariants: at most LEDGERS_AT_ONCE ledgers are under way, and some more that lack copies, so that a
loss does not wait for the end of a drain, or have no bytes to copy. A ledger is repaired only under
a claim of this worker, and a job is removed only after its ledger needs nothing more. A blocked job
is left, and not read, until it is queued again and that is announced. No copy is begun while repair
is paused, or after the claim has ended with its session. A job that was postponed for about two
minutes shows why, and is tried again each minute; such jobs do not fill all places. A job that this
release cannot read stops no other one. The bytes per second are the cluster's ceiling divided by
the number of workers.

Source: protocol rules 9.1 and 9.3.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ledger_client.client_services import ClientServices
from ledger_client.copying import CopyProgress
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId, Version
from metadata.registry.cookies import CookieStore
from metadata.repair.claims import ClaimStore, HeldClaim
from metadata.repair.job_store import NEVER_ANNOUNCED, JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle_store import Lifecycles
from metadata.repair.settings_store import RepairSettingsView
from metadata.repair.workers import WorkerDirectory
from quire.repair.attempts import Blocked, Deleted, Outcome, Postponed, Repaired
from quire.repair.ledger_reads import OrderlyStops
from quire.repair.ledger_repair import LedgerRepair
from quire.repair.needs import RepairClass
from quire.repair.pacing import AppendWatch
from quire.repair.spread import NO_PLACES, Places, places_of
from quire.repair.standing import Standing, Standings, standing_of
from quire.server.server_log import ServerLog, loop_time

if TYPE_CHECKING:
    from metadata.store.interface import Cancel


LEDGERS_AT_ONCE: Final = 4
MORE_AT_ONCE: Final[Mapping[int, int]] = {
    RepairClass.LAST_COPY: 2,
    RepairClass.SHORT_OF_ACK_QUORUM: 1,
    RepairClass.SHORT_OF_WRITE_QUORUM: 1,
}
"""How many more ledgers may be under way when one of this urgency begins, so that it does not wait
for the end of long copies that are less urgent.
"""
MORE_WITHOUT_BYTES: Final = 1
"""How many more when one without bytes to copy begins. Of an open ledger the worker looks whether
its writer is missing, for some time again and again; a look must not wait for the end of copies.
"""
AGAIN_AT_ONCE: Final = LEDGERS_AT_ONCE - 1
"""How many jobs with bytes that were postponed before may be under way: those that fail slowly
leave room for others.
"""
LOOK_EVERY_S: Final = 5.0
"""Maximum time between two looks at the published jobs, should a watch event be lost."""
BLOCKED_AGAIN_S: Final = 300.0
"""Time after which a blocked job is read again, should the change that queues it be missed."""
AGAIN_S: Final = 5.0
"""Pause after a failure that is a defect."""
RETRY_S: Final = (2.0, 60.0)
"""First and longest pause before a postponed job is tried again; it doubles in between. A pause
ends earlier if it is known when the job can continue.
"""

_log = ServerLog(loop_time)


@dataclass(frozen=True, slots=True)
class RepairViews:
    """What a worker follows in the metadata."""

    jobs: JobStore
    claims: ClaimStore
    lifecycles: Lifecycles
    settings: RepairSettingsView
    workers: WorkerDirectory


class _NoMoreCopiesError(Exception):
    """No copy of the ledger may begin now."""


@dataclass(slots=True)
class _Pause:
    until_s: float
    length_s: float


class RepairWorker:
    """Worker of one process, from `start` to `aclose`."""

    def __init__(
        self, services: ClientServices, views: RepairViews, repair: LedgerRepair, worker_id: str
    ) -> None:
        self._services = services
        self._views = views
        self._repair = repair
        self._worker_id = worker_id
        self._cookies = CookieStore(services.store)
        self._stops = OrderlyStops(services.store)
        self._wake = asyncio.Event()
        self._running: dict[LedgerId, asyncio.Task[None]] = {}
        self._again: set[LedgerId] = set()
        """Ledgers under way whose jobs were postponed before."""
        self._pauses: dict[JobName, _Pause] = {}
        self._blocked: dict[JobName, float] = {}
        """Jobs that were blocked when they were read, and when they are read again."""
        self._announced = NEVER_ANNOUNCED
        self._cancels: list[Cancel] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to repair."""
        views = self._views
        self._cancels = [
            views.jobs.watch(self._wake.set),
            views.jobs.watch_announced(self._wake.set),
            views.settings.on_change(self._wake.set),
            views.workers.on_change(self._wake.set),
        ]
        loop = asyncio.get_running_loop()
        watch = AppendWatch(self._services.pool, self._repair.shares)
        self._tasks = [loop.create_task(_keep(work)) for work in (self._run, watch.run)]

    async def aclose(self) -> None:
        """Stop; copies under way are cancelled and their marks removed."""
        for cancel in self._cancels:
            cancel()
        await cancel_and_wait(*self._tasks)
        await cancel_and_wait(*self._running.values())

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._set_rate()
            with contextlib.suppress(MetadataError):  # they are read again soon
                await self._take_jobs()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._wake.wait()

    def _wait_s(self) -> float:
        now_s = asyncio.get_running_loop().time()
        dues = [pause.until_s - now_s for pause in self._pauses.values()]
        return max(0.05, min([LOOK_EVERY_S, *dues]))

    def _set_rate(self) -> None:
        self._repair.shares.follow(self._views.settings.settings, self._views.workers.count)

    @property
    def _is_paused(self) -> bool:
        return self._views.settings.settings.paused_until_ms > self._services.wall_clock_ms()

    async def _take_jobs(self) -> None:
        """Begin jobs until enough are under way."""
        if self._is_paused:
            return
        announced = await self._views.jobs.announced()
        if announced != self._announced:
            self._announced = announced
            self._blocked.clear()
        names = await self._views.jobs.published()
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in names}
        self._blocked = {name: why for name, why in self._blocked.items() if name in names}
        claimed: frozenset[LedgerId] | None = None
        for name in names:
            is_waiting = name.ledger_id not in self._running and not self._is_put_off(name)
            has_room = len(self._running) < _at_once(name)
            if name in self._pauses:
                has_room = has_room and len(self._again) < _again_at_once(name)
            if is_waiting and has_room:
                if claimed is None:
                    claimed = await self._views.claims.claimed_by_others()
                if name.ledger_id not in claimed:
                    await self._begin(name)

    def _is_put_off(self, name: JobName) -> bool:
        now_s, pause = asyncio.get_running_loop().time(), self._pauses.get(name)
        is_paused = pause is not None and now_s < pause.until_s
        return is_paused or now_s < self._blocked.get(name, -math.inf)

    async def _begin(self, name: JobName) -> None:
        try:
            job, version = await self._views.jobs.get(name)
            if job.state is not JobState.QUEUED:
                self._blocked[name] = asyncio.get_running_loop().time() + BLOCKED_AGAIN_S
                self._pauses.pop(name, None)
                return
            claim = await self._views.claims.claim(
                name.ledger_id, self._worker_id, self._services.wall_clock_ms()
            )
        except NodeNotFoundError:
            return
        except MetadataFormatError as error:  # of a later release, as a rule
            self._put_off(name, str(error))
            return
        if claim is None:
            return
        task = asyncio.get_running_loop().create_task(self._do(job, version, claim))
        self._running[name.ledger_id] = task
        if name in self._pauses:
            self._again.add(name.ledger_id)
        else:
            self._repair.begin_again(name.ledger_id)
        task.add_done_callback(lambda _: self._note_end(name.ledger_id))

    def _note_end(self, ledger_id: LedgerId) -> None:
        del self._running[ledger_id]
        self._again.discard(ledger_id)
        self._wake.set()

    async def _do(self, job: Job, version: Version, claim: HeldClaim) -> None:
        """Repair one ledger, and store the result in its job."""
        copied = CopiedBytes()

        def report(progress: CopyProgress) -> None:
            claim.report(copied.add(progress), job.name.size_bytes, progress.target)

        async def look() -> tuple[Standings, Places]:
            standings = await self._standings(job)
            if self._is_paused:
                raise _NoMoreCopiesError("repair is paused")
            if not claim.is_held:
                raise _NoMoreCopiesError("its claim has ended: another worker may have it")
            return standings, self._places(job, standings)

        urgency = str(RepairClass(job.name.urgency).name).lower()
        _log.info("repair began", ledger=job.ledger_id, urgency=urgency)
        try:
            outcome = await self._repair.repair(job.ledger_id, look, report)
            await self._store(job, version, outcome)
        except (MetadataError, _NoMoreCopiesError) as error:
            self._put_off(job.name, str(error))
        except Exception as error:  # noqa: BLE001 - a defect must not be repeated at once, for ever
            text = f"the repair of ledger {job.ledger_id} failed: it is tried again later"
            failure = {"message": text, "exception": error}
            asyncio.get_running_loop().call_exception_handler(failure)
            self._put_off(job.name, f"it failed: {error!r}")
        finally:
            await claim.release()

    async def _standings(self, job: Job) -> Standings:
        """Return the standings for a job. A bookie that is not registered counts as gone if the
        bookie drains, or if the job is urgent and the bookie did not stop in order.
        """
        up = dict(self._services.directory.bookies)  # it changes during the reads below
        states = {id_: record.state for id_, record in self._views.lifecycles.records.items()}
        standings = {id_: standing_of(state, is_up=id_ in up) for id_, state in states.items()}
        not_good = {id_: kind for id_, kind in standings.items() if kind != Standing.GOOD}
        if job.name.urgency != RepairClass.LAST_COPY:
            return Standings(not_good)
        known = await self._cookies.list_bookie_ids()
        stopped = await self._stops.among(known, up, states)
        return Standings(not_good, registered=up, stopped=stopped)

    def _places(self, job: Job, standings: Standings) -> Places:
        """Return the places for a job that moves copies; an urgent job moves none."""
        is_move = job.name.urgency == RepairClass.MISPLACED
        if is_move and self._views.settings.settings.move_misplaced:
            return places_of(self._services.directory.bookies, standings)
        return NO_PLACES

    async def _store(self, job: Job, version: Version, outcome: Outcome) -> None:
        """Store the result in a job, unless another process has changed it: then the job is done
        once more.
        """
        jobs = self._views.jobs
        match outcome:
            case Repaired() | Deleted():
                self._pauses.pop(job.name, None)
                copies = outcome.copies if isinstance(outcome, Repaired) else 0
                _log.info("repair ended", ledger=job.ledger_id, copies=copies)
                await jobs.remove(job.name, version)
            case Blocked(reason):
                _log.warning("repair blocked", ledger=job.ledger_id, reason=reason)
                blocked = replace(job, state=JobState.BLOCKED, blocked_reason=reason)
                await jobs.change(blocked, version)
            case Postponed(reason, again_s):
                self._put_off(job.name, reason, again_s)
                is_long = self._pauses[job.name].length_s == RETRY_S[1]
                if is_long and reason != job.blocked_reason:
                    _log.info("repair waits", ledger=job.ledger_id, reason=reason)
                    await jobs.change(replace(job, blocked_reason=reason), version)

    def _put_off(self, name: JobName, reason: str, again_s: float = math.inf) -> None:
        first_s, longest_s = RETRY_S
        before = self._pauses.get(name)
        length_s = first_s if before is None else min(2 * before.length_s, longest_s)
        until_s = asyncio.get_running_loop().time() + min(length_s, again_s)
        self._pauses[name] = _Pause(until_s, length_s)


async def _keep(run: Callable[[], Awaitable[None]]) -> None:
    """Begin again after a defect: it must not end repair in this process for good."""
    while True:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - it is logged
            _log.failure("worker of repair failed", error, again_s=AGAIN_S)
        await asyncio.sleep(AGAIN_S)


def _at_once(name: JobName) -> int:
    """Return how many ledgers may be under way with this one."""
    more = 0 if name.size_bytes else MORE_WITHOUT_BYTES
    return LEDGERS_AT_ONCE + MORE_AT_ONCE.get(name.urgency, 0) + more


def _again_at_once(name: JobName) -> int:
    """Return how many ledgers whose jobs were postponed before may be under way with this one."""
    return AGAIN_AT_ONCE + (0 if name.size_bytes else MORE_WITHOUT_BYTES)


class CopiedBytes:
    """Bytes copied for one ledger, over all its copies (rule 9.3).

    The copies follow each other, each with one fragment or range and one target. A copy that ended
    before it was complete counts no more once the next one begins.
    """

    def __init__(self) -> None:
        self._complete = 0
        self._last: CopyProgress | None = None

    def add(self, progress: CopyProgress) -> int:
        """Record the progress of the copy under way; return the bytes of all copies."""
        last = self._last
        if last is not None and _copy_of(last) != _copy_of(progress):
            self._complete += last.copied_bytes if _is_complete(last) else 0
        self._last = progress
        return self._complete + progress.copied_bytes


def _copy_of(progress: CopyProgress) -> tuple[int, str]:
    return progress.fragment_first_entry_id, progress.target


def _is_complete(progress: CopyProgress) -> bool:
    return progress.copied_entries == progress.total_entries

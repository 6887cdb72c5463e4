"""Which jobs are published, when a blocked one is tried again, and how fast they are done. Pure.

Invariants: at most `limit` jobs are published, those of the most urgent ledgers; at most half of
them for ledgers with needs only in their open fragments, because most of their writers replace the
bookie themselves. If there are more of these, they take turns: those whose writers live and wait
keep no others out. A ledger has one job. A job that an operator requested stays until a worker has
done it. A job whose urgency changed gets a new name; a different estimate of its bytes changes
nothing.

Source: protocol rules 9.1 and 9.3; docs/repair.md, "The auditor".
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metadata.ids import BookieId, LedgerId
from metadata.ledgers.entry_ranges import describe_ranges
from metadata.registry.registration import BookieRegistration
from metadata.repair.jobs import BYTES_MAX, Job, JobName, JobState
from metadata.repair.scrub import BadRange
from quire.repair.bad_entries import MissingRanges
from quire.repair.ledger_index import RankedLedger, RepairPlan
from quire.repair.needs import RepairClass
from quire.repair.standing import Standing

REQUESTED: Final = "an operator requested it"
TURN_MS: Final = 600_000
"""Length of a turn, if not all open ledgers get jobs. A worker needs less to find that a writer is
missing (rule 9.2), and to recover its ledger.
"""
REASONS: Final[Mapping[RepairClass, str]] = {
    RepairClass.LAST_COPY: "some entries have at most one good copy left",
    RepairClass.SHORT_OF_ACK_QUORUM: "some entries have fewer good copies than the ack quorum",
    RepairClass.SHORT_OF_WRITE_QUORUM: "some entries have fewer good copies than the write quorum",
    RepairClass.DRAINING: "some copies are on bookies that drain",
    RepairClass.MISPLACED: "some copies share a rack or a host, and a better place exists",
    RepairClass.LOST: "some entries have no copy",
}
DAMAGED: Final = "some entries are damaged on {}"
MISSING: Final = "entries {} are missing on {}"
OPEN: Final = "its open fragment names a bookie that is gone, drains, or is in limbo"
LOST: Final = (
    "no bookie that holds some of its entries is up: bring one back, or accept the loss with "
    "`quire ledger accept-loss`"
)
SEEN_AFTER_S: Final = 30.0
"""Time after a change in which a worker may decide by what it saw before: its server of the
metadata service lags, or its connection was lost with the event.
"""
PUBLISHED_MAX: Final = 500
"""Number of published jobs that wait for a change, half of all that may be published."""
SET_ASIDE_MAX: Final = 100_000
"""Number of ledgers that are set aside: about 100 bytes of memory each."""
WINDOW_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Publication:
    """Changes of the published jobs."""

    remove: tuple[JobName, ...]
    publish: tuple[Job, ...]


def publication(
    plan: RepairPlan,
    open_urgency: RepairClass,
    published: Mapping[JobName, Job],
    now_ms: int,
    limit: int,
) -> Publication:
    """Return the changes after which the most urgent ledgers of a plan have jobs.

    `open_urgency` is the urgency of a ledger that has needs only in its open fragment.
    """
    requested = {name.ledger_id for name, job in published.items() if REQUESTED in job.reasons}
    wanted = _wanted(plan, open_urgency, now_ms, max(0, limit - len(requested)))
    by_ledger: dict[LedgerId, JobName] = {}
    remove: list[JobName] = []
    for name, job in sorted(published.items(), key=lambda item: REQUESTED not in item[1].reasons):
        ranked = wanted.get(name.ledger_id)
        is_kept = REQUESTED in job.reasons or (
            ranked is not None and ranked.name.urgency == name.urgency
        )
        if is_kept and name.ledger_id not in by_ledger:
            by_ledger[name.ledger_id] = name
        else:
            remove.append(name)
    missing = (job for ledger_id, job in wanted.items() if ledger_id not in by_ledger)
    return Publication(tuple(remove), tuple(missing))


def _wanted(
    plan: RepairPlan, open_urgency: RepairClass, now_ms: int, limit: int
) -> dict[LedgerId, Job]:
    """Return the jobs of the most urgent ledgers, in their order."""
    is_open = frozenset(plan.open_ledgers)
    jobs = {
        ledger.ledger_id: _job(ledger, _reasons(plan, ledger), now_ms)
        for ledger in plan.first
        if ledger.repair_class is not RepairClass.LOST or ledger.ledger_id not in is_open
    }
    others = [ledger for ledger in plan.open_ledgers if ledger not in jobs]
    jobs |= {
        ledger_id: _job(RankedLedger(open_urgency, 0, ledger_id), (OPEN,), now_ms)
        for ledger_id in _in_turn(others, limit // 2, now_ms)
    }
    first = sorted(jobs.values(), key=lambda job: job.name)[:limit]
    return {job.ledger_id: job for job in first}


def _in_turn(ledger_ids: Sequence[LedgerId], limit: int, now_ms: int) -> Sequence[LedgerId]:
    """Return at most `limit` of the ledgers: the next ones in each turn."""
    if len(ledger_ids) <= limit:
        return ledger_ids
    start = now_ms // TURN_MS * limit % len(ledger_ids)
    return (*ledger_ids[start:], *ledger_ids[:start])[:limit]


def _reasons(plan: RepairPlan, ranked: RankedLedger) -> tuple[str, ...]:
    damaged = plan.damaged.get(ranked.ledger_id)
    missing = plan.missing.get(ranked.ledger_id, {})
    reasons = [] if damaged is None else [DAMAGED.format(", ".join(sorted(damaged)))]
    reasons += [MISSING.format(describe_ranges(missing[id_]), id_) for id_ in sorted(missing)]
    return tuple(reasons) or (REASONS[ranked.repair_class],)


def _job(ranked: RankedLedger, reasons: tuple[str, ...], now_ms: int) -> Job:
    name = JobName(ranked.repair_class, min(ranked.byte_count, BYTES_MAX), ranked.ledger_id)
    is_lost = ranked.repair_class is RepairClass.LOST
    state = JobState.LOST if is_lost else JobState.QUEUED
    return Job(name, reasons, now_ms, state, LOST if is_lost else "")


class Changes:
    """Finder of changes of the cluster and of single ledgers, of one auditor.

    A change is what may let a repair succeed, or gives it more to do: a bookie joins or becomes
    writable; copies on a bookie count no more; the metadata of the ledger changed, or more of its
    entries are found damaged or missing. A bookie that only leaves helps none.
    """

    def __init__(self) -> None:
        self._facts: frozenset[tuple[BookieId, str]] | None = None
        self._bad: frozenset[tuple[BookieId, BadRange]] = frozenset()
        self._missing: MissingRanges = {}

    def of_cluster(
        self, up: Mapping[BookieId, BookieRegistration], by_bookie: Mapping[BookieId, Standing]
    ) -> bool:
        """Return whether the cluster has changed since the latest call. `by_bookie` has the
        standings that are not good.
        """
        facts = {(bookie, "registered") for bookie in up}
        facts |= {(bookie, "writable") for bookie, server in up.items() if server.writable}
        facts |= set(by_bookie.items())
        before, self._facts = self._facts, frozenset(facts)
        return before is None or not facts <= before

    def of_ledgers(
        self, bad: Mapping[BookieId, Iterable[BadRange]], missing: MissingRanges
    ) -> set[LedgerId]:
        """Return the ledgers of which other entries are damaged or missing than at the latest
        call: an entry that can be read again may let a repair succeed.
        """
        pairs = {(bookie_id, range_) for bookie_id, ranges in bad.items() for range_ in ranges}
        changed = {bad_range.ledger_id for _, bad_range in pairs ^ self._bad}
        changed |= {id_ for id_ in missing if missing[id_] != self._missing.get(id_)}
        self._bad, self._missing = frozenset(pairs), missing
        return changed


class Retries:
    """Blocked jobs that are to be queued again, of one auditor.

    A blocked job is due until it is stored as queued, also if storing it fails. What a worker found
    counts only if the job was queued after the latest change: an attempt that began before it may
    end after it. A worker may see a change late, so a job that is blocked after that is tried once
    more. So each change leads to a bounded number of attempts, and none is made without a change.
    """

    def __init__(self) -> None:
        self._changed_s = -math.inf
        self._queued_s: dict[JobName, float] = {}
        """When each job was queued after the latest change of its ledger."""

    def note_queued(self, name: JobName, began_s: float) -> None:
        """Note that a job was stored as queued, by a call that began at `began_s`."""
        self._queued_s[name] = began_s

    def look(
        self,
        published: Mapping[JobName, Job],
        changed: Container[LedgerId],
        now_s: float,
        *,
        is_cluster_changed: bool,
    ) -> list[JobName]:
        """Return the blocked jobs that are due. `changed` are the ledgers that have changed since
        the latest call.
        """
        if is_cluster_changed:
            self._changed_s = now_s
        self._queued_s = {
            name: queued_s
            for name, queued_s in self._queued_s.items()
            if name in published and name.ledger_id not in changed
        }
        return [
            job.name
            for job in published.values()
            if job.state is JobState.BLOCKED and self._is_due(job.name, now_s)
        ]

    def _is_due(self, name: JobName, now_s: float) -> bool:
        queued_s = self._queued_s.get(name, -math.inf)
        seen_s = self._changed_s + SEEN_AFTER_S
        return queued_s < self._changed_s or queued_s < seen_s <= now_s

    def waiting(self, published: Mapping[JobName, Job]) -> list[Job]:
        """Return the blocked jobs that are not tried again before the next change."""
        seen_s = self._changed_s + SEEN_AFTER_S
        return [
            job
            for job in published.values()
            if job.state is JobState.BLOCKED and self._queued_s.get(job.name, -math.inf) >= seen_s
        ]


class SetAside:
    """Blocked ledgers without a published job, each with the reason, of one auditor.

    At most PUBLISHED_MAX jobs that wait for a change stay published: others could not be published
    beside them. The ledgers of the rest are set aside, at most SET_ASIDE_MAX, until the next
    change.
    """

    def __init__(self) -> None:
        self._reasons: dict[LedgerId, str] = {}

    @property
    def ledgers(self) -> Collection[LedgerId]:
        """The ledgers."""
        return self._reasons.keys()

    @property
    def reasons(self) -> Counter[str]:
        """Number of ledgers by reason."""
        return Counter(self._reasons.values())

    def bring_back(self, changed: Iterable[LedgerId], *, is_cluster_changed: bool) -> None:
        """Take all ledgers back when the cluster changed, and those that changed themselves."""
        if is_cluster_changed:
            self._reasons.clear()
        for ledger_id in changed:
            self._reasons.pop(ledger_id, None)

    def look(self, waiting: Sequence[Job]) -> list[JobName]:
        """Return the jobs to remove, the least urgent first, of those that wait for a change."""
        room = SET_ASIDE_MAX - len(self._reasons)
        last = sorted(waiting, key=lambda job: job.name)[PUBLISHED_MAX:][::-1][:room]
        self._reasons |= {job.ledger_id: job.blocked_reason for job in last}
        return [job.name for job in last]


class Progress:
    """Speed of repair, and time left (rule 9.3).

    The rate is that of the last WINDOW_S seconds. Work that is added meanwhile does not count as
    negative progress.
    """

    def __init__(self) -> None:
        self._done: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._began_s: float | None = None

    def add(self, amount: int, now_s: float) -> None:
        """Record that an amount of work was done."""
        self._trim(now_s)
        if self._began_s is None:
            self._began_s = now_s
        self._done.append((now_s, amount))
        self._sum += amount

    def rate(self, now_s: float) -> float:
        """Return the amount per second; 0 if nothing was done in the last WINDOW_S seconds."""
        self._trim(now_s)
        if self._began_s is None:
            return 0.0
        return self._sum / max(1.0, min(WINDOW_S, now_s - self._began_s))

    def left_s(self, left: int, now_s: float) -> float | None:
        """Return the time until `left` is done; None if it is unknown."""
        rate = self.rate(now_s)
        if left == 0:
            return 0.0
        return left / rate if rate else None

    def _trim(self, now_s: float) -> None:
        while self._done and self._done[0][0] <= now_s - WINDOW_S:
            self._sum -= self._done.popleft()[1]
        if not self._done:
            self._began_s = None

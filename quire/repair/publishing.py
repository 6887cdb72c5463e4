"""Which jobs to publish and to remove. Pure.

Leaves storing them to `quire.repair.auditor`, and trying blocked ones again to
`quire.repair.retries`.

Invariants: at most `limit` jobs are published, those of the most urgent ledgers; at most half of
them for ledgers with needs only in their open fragments, because most of their writers replace the
bookie themselves. If there are more of these, they take turns: those whose writers live and wait
keep no others out. A ledger has one job. A job that an operator requested stays until a worker has
done it. A job whose urgency changed gets a new name; a different estimate of its bytes changes
nothing.

Source: protocol rules 9.1 and 9.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metadata.ids import LedgerId
from metadata.ledgers.entry_ranges import describe_ranges
from metadata.repair.jobs import BYTES_MAX, Job, JobName, JobState
from quire.repair.ledger_index import RankedLedger, RepairPlan
from quire.repair.needs import RepairClass

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
    for name, job in sorted(published.items(), key=lambda each: REQUESTED not in each[1].reasons):
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
        each.ledger_id: _job(each, _reasons(plan, each), now_ms)
        for each in plan.first
        if each.repair_class is not RepairClass.LOST or each.ledger_id not in is_open
    }
    others = [each for each in plan.open_ledgers if each not in jobs]
    jobs |= {
        each: _job(RankedLedger(open_urgency, 0, each), (OPEN,), now_ms)
        for each in _in_turn(others, limit // 2, now_ms)
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
    found = [] if damaged is None else [DAMAGED.format(", ".join(sorted(damaged)))]
    found += [MISSING.format(describe_ranges(missing[each]), each) for each in sorted(missing)]
    return tuple(found) or (REASONS[ranked.repair_class],)


def _job(ranked: RankedLedger, reasons: tuple[str, ...], now_ms: int) -> Job:
    name = JobName(ranked.repair_class, min(ranked.byte_count, BYTES_MAX), ranked.ledger_id)
    is_lost = ranked.repair_class is RepairClass.LOST
    state = JobState.LOST if is_lost else JobState.QUEUED
    return Job(name, reasons, now_ms, state, LOST if is_lost else "")

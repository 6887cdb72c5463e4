"""Summary of repair and of scrubs for operators: one sentence, and all figures.

Leaves what is left to repair to the auditor, and the schedule of scrubs to the bookies.

Source: protocol rules 9.3 and 9.12; docs/repair.md, "Scrub".
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger_client.cluster_access import Cluster, wall_clock_ms
from metadata.ids import BookieId, LedgerId
from metadata.paths import REPAIR_WORKERS
from metadata.repair.auditor_election import read_auditor_id
from metadata.repair.claims import Claim, ClaimStore
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import JobName
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.scrub import ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsStore
from metadata.repair.status import BLOCKED_REASONS_MAX, RepairStatus
from metadata.repair.status_store import StatusStore
from quire.operate.assessment import IF_GONE, START, next_step
from quire.operate.fields import Json, describe_bytes, describe_duration
from quire.operate.findings import names
from quire.repair.needs import RepairClass

URGENCY_TEXTS: Final[Mapping[int, str]] = {
    RepairClass.LAST_COPY: "at most one good copy left",
    RepairClass.SHORT_OF_ACK_QUORUM: "fewer good copies than the ack quorum",
    RepairClass.SHORT_OF_WRITE_QUORUM: "fewer good copies than the write quorum",
    RepairClass.DRAINING: "copies on draining bookies",
    RepairClass.MISPLACED: "copies that share a rack or a host",
    RepairClass.LOST: "no copy",
}
UNCOUNTED: Final = (Lifecycle.LOST, Lifecycle.DRAINING, Lifecycle.LIMBO)
"""States whose ledgers are only known once the auditor has looked for them."""
REASONS_SHOWN_MAX: Final = 3
NAMES_SHOWN_MAX: Final = 3
STATUS_AGE_MS_MAX: Final = 180_000
"""Age from which on a summary is old: the auditor writes it each minute at least."""


class Table(NamedTuple):
    """A table of the summary."""

    name: str
    """Field of `RepairSummary.as_json` with its rows."""
    title: str
    columns: tuple[str, ...]


TABLES: Final = (
    Table("classes", "Left to repair", ("class", "what", "ledgers", "bytes")),
    Table("blocked", "Blocked", ("ledgers", "reason")),
    Table(
        "claims",
        "Under way",
        ("ledger", "worker", "target", "copied_bytes", "total_bytes", "percent", "for_s"),
    ),
    Table("away", "Away", ("id", "lost_in_s", "next")),
    Table("bookies", "Bookies that leave or are lost", ("id", "lifecycle", "reason", "next")),
    Table("scrubs", "Scrubs", ("id", "scrub", "checked_bytes", "bad_entries")),
)


@dataclass(frozen=True, slots=True)
class RepairSummary:
    """What the metadata says about repair."""

    now_ms: int
    settings: RepairSettings
    auditor_id: str | None
    status: RepairStatus | None
    workers: Sequence[str]
    published: Sequence[JobName]
    """All published jobs, in their order."""
    claims: Sequence[Claim]
    not_up: Sequence[BookieId]
    """Bookies that are not registered."""
    lifecycles: Mapping[BookieId, BookieLifecycle]
    scrubs: Mapping[BookieId, ScrubRecord]

    @property
    def is_paused(self) -> bool:
        """Whether an operator's pause has not ended."""
        return self.settings.paused_until_ms > self.now_ms

    @property
    def sentence(self) -> str:
        """Return the state of repair in one sentence."""
        if self.auditor_id is None:
            return "No auditor runs, so nothing is found or repaired: start a bookie with repair."
        status = self.status
        if status is None or status.audited_ms is None:
            return "The first audit is not complete yet."
        if self.now_ms - status.written_ms > STATUS_AGE_MS_MAX:
            age = describe_duration((self.now_ms - status.written_ms) / 1000)
            return f"The auditor has not written its summary for {age}: see its log."
        changed = self._changed_text(status)
        others = (self._damage_text(), self._away_text(), changed, _lost_text(status))
        return "; ".join(filter(None, (self._left_text(status), *others))) + "."

    @property
    def away(self) -> Mapping[BookieId, int | None]:
        """Return the bookies that are not up and not lost yet, and in how many ms each counts as
        lost; None while the auditor has not written that.
        """
        known: dict[BookieId, int] = {}
        if self.status is not None and self.status.auditor_id == self.auditor_id:
            known = {each.bookie_id: each.since_ms for each in self.status.away}
        delay_ms = 1000 * self.settings.lost_after_s
        return {
            each: max(0, known[each] + delay_ms - self.now_ms) if each in known else None
            for each in self.not_up
            if self._state_of(each) is Lifecycle.ACTIVE
        }

    def as_json(self) -> dict[str, Json]:
        """Return all figures."""
        settings, status = self.settings, self.status
        row: dict[str, Json] = {
            "state": self.sentence,
            "auditor": self.auditor_id,
            "workers": list(self.workers),
            "paused_until_ms": settings.paused_until_ms if self.is_paused else None,
            "bytes_per_s_max": settings.bytes_per_s or None,
            "bookie_bytes_per_s_max": settings.bookie_bytes_per_s or None,
            "source_bytes_per_s_max": settings.source_bytes_per_s or None,
        }
        if status is not None:
            row |= self._figures(status)
        row["claims"] = [claim_as_json(each, self.now_ms) for each in self.claims]
        row["away"] = [
            {
                "id": bookie_id,
                "lost_in_s": None if lost_in_ms is None else lost_in_ms // 1000,
                "next": f"{START}; {IF_GONE}, wait for repair",
            }
            for bookie_id, lost_in_ms in self.away.items()
        ]
        row["bookies"] = [
            {
                "id": bookie_id,
                "lifecycle": str(record.state),
                "since_ms": record.since_ms,
                "reason": record.reason,
                "next": next_step(bookie_id, record.state),
            }
            for bookie_id, record in self.lifecycles.items()
            if record.state is not Lifecycle.ACTIVE
        ]
        row["scrubs"] = list[Json](scrubs_as_json(self.scrubs, settings, self.now_ms))
        return row

    def _figures(self, status: RepairStatus) -> dict[str, Json]:
        """Return what the auditor counted, with the copies under way."""
        totals = [each for each in status.totals if each.urgency != RepairClass.LOST]
        return {
            "audited_ms": status.audited_ms,
            "written_ms": status.written_ms,
            "ledgers_left": sum(each.ledgers for each in totals),
            "ledgers_blocked": _blocked_count(status),
            "bytes_left": status.bytes_left,
            "copied_bytes": self._copied_bytes,
            "bytes_per_s": max(status.bytes_per_s, self._claims_bytes_per_s),
            "eta_s": self._eta_s(status),
            "lost_ledgers": status.lost_ledgers,
            "classes": [
                {
                    "class": each.urgency,
                    "what": urgency_text(each.urgency),
                    "ledgers": each.ledgers,
                    "bytes": each.size_bytes,
                }
                for each in status.totals
            ],
            "blocked": [
                {"reason": each.reason, "ledgers": each.ledgers} for each in status.blocked
            ],
        }

    @property
    def _copied_bytes(self) -> int:
        """Bytes that the workers have copied of the ledgers that they repair now."""
        return sum(min(each.copied_bytes, each.total_bytes) for each in self.claims)

    @property
    def _claims_bytes_per_s(self) -> int:
        """Bytes per second of the ledgers that are repaired now, each since its claim. The auditor
        counts the bytes of a ledger only once it is done.
        """
        ages_s = [max(1.0, (self.now_ms - each.since_ms) / 1000) for each in self.claims]
        rates = zip(self.claims, ages_s, strict=True)
        return round(sum(min(c.copied_bytes, c.total_bytes) / age_s for c, age_s in rates))

    def _eta_s(self, status: RepairStatus) -> int | None:
        """Return the time left at the higher of both rates; None if nothing was copied."""
        rate = self._claims_bytes_per_s
        if rate <= status.bytes_per_s:
            return status.eta_s
        return math.ceil(max(0, status.bytes_left - self._copied_bytes) / rate)

    def _state_of(self, bookie_id: BookieId) -> Lifecycle:
        return self.lifecycles.get(bookie_id, UNCHANGED).state

    def _left_text(self, status: RepairStatus) -> str:
        found = sum(each.ledgers for each in status.totals if each.urgency != RepairClass.LOST)
        # Ledgers that only an open fragment or an operator's request concerns have jobs alone.
        jobs = sum(each.urgency != RepairClass.LOST for each in self.published)
        ledgers, blocked = max(found, jobs), _blocked_count(status)
        if not ledgers:
            waits = self.away or self._damaged_without_job() or self._changed_since(status)
            return f"Nothing to repair{' now' if waits else ''}"
        left = f"{_count(ledgers)} to repair"
        if status.bytes_left:
            left += f", {describe_bytes(status.bytes_left)}"
            copied = min(self._copied_bytes, status.bytes_left)
            left += f" ({describe_bytes(copied)} copied)" if copied else ""
        why = _blocked_text(status)
        if self.is_paused:
            pause_s = (self.settings.paused_until_ms - self.now_ms) / 1000
            return f"Paused for {describe_duration(pause_s)}: {left}{why}"
        if blocked >= ledgers and not self.claims:
            return f"Blocked: {left}{why}"
        time = "time left unknown"
        eta_s = self._eta_s(status)
        if status.bytes_left and eta_s is not None:
            time = f"about {describe_duration(eta_s)} left"
        return f"Repairing: {left}, {time}{why}"

    def _changed_since(self, status: RepairStatus) -> list[BookieId]:
        """Return the bookies whose copies must be made again, or moved, since after a summary."""
        return [
            each
            for each, record in self.lifecycles.items()
            if record.state in UNCOUNTED and record.since_ms > status.written_ms
        ]

    def _changed_text(self, status: RepairStatus) -> str:
        changed = self._changed_since(status)
        if not changed:
            return ""
        states = ", ".join(
            f"{each} is {self._state_of(each)}" for each in changed[:NAMES_SHOWN_MAX]
        )
        return f"{states}, which the auditor has not counted yet"

    def _damaged_without_job(self) -> Mapping[LedgerId, int]:
        """Return the ledgers with damaged entries that have no job, and the number of entries."""
        have_jobs = {each.ledger_id for each in self.published}
        found = Counter[LedgerId]()
        for bookie_id, record in self.scrubs.items():
            if self._state_of(bookie_id) not in (Lifecycle.LOST, Lifecycle.REMOVED):
                for each in record.bad:
                    found[each.ledger_id] += each.last_entry_id - each.first_entry_id + 1
        return {each: found[each] for each in sorted(found) if each not in have_jobs}

    def _damage_text(self) -> str:
        found = self._damaged_without_job()
        if not found:
            return ""
        first, entries = next(iter(found)), sum(found.values())
        what = "1 damaged entry has" if entries == 1 else f"{entries} damaged entries have"
        return f"{what} no job, see quire repair explain {first}"

    def _away_text(self) -> str:
        away = self.away
        if not away:
            return ""
        dues = [each for each in away.values() if each is not None]
        delay = describe_duration(self.settings.lost_after_s)
        when = f"in {describe_duration(min(dues) / 1000)}" if dues else f"{delay} after it left"
        lost = f"it counts as lost {when}"
        if len(away) > 1:
            lost = f"the first of them counts as lost {when}"
        be = "is" if len(away) == 1 else "are"
        return (
            f"{names(away, NAMES_SHOWN_MAX)} {be} away: {lost}, and then its copies are made again"
        )


def claim_as_json(claim: Claim, now_ms: int) -> dict[str, Json]:
    """Return the fields of a claim. The total is an estimate; it is unknown, and so is the share,
    if only damaged or missing entries are copied.
    """
    copied, total = claim.copied_bytes, max(claim.copied_bytes, claim.total_bytes)
    is_known = claim.total_bytes > 0
    return {
        "ledger": claim.ledger_id,
        "worker": claim.worker_id,
        "target": claim.target or None,
        "copied_bytes": copied,
        "total_bytes": total if is_known else None,
        "percent": 100 * copied // total if is_known else None,
        "for_s": max(0, now_ms - claim.since_ms) // 1000,
    }


def copied_text(claim: Claim) -> str:
    """Return how much a worker has copied of a ledger."""
    copied = describe_bytes(claim.copied_bytes)
    if not claim.total_bytes:
        return f"{copied} copied"
    return f"{copied} of about {describe_bytes(max(claim.copied_bytes, claim.total_bytes))} copied"


def urgency_text(urgency: int) -> str:
    """Return what the ledgers of a class have in common."""
    return URGENCY_TEXTS.get(urgency, f"class {urgency}")


def _blocked_count(status: RepairStatus) -> int:
    return sum(each.ledgers for each in status.blocked)


def _blocked_text(status: RepairStatus) -> str:
    """Return how many ledgers are blocked, and the most frequent reasons."""
    if not status.blocked:
        return ""
    at_least = "at least " if len(status.blocked) >= BLOCKED_REASONS_MAX else ""
    reasons = sorted(status.blocked, key=lambda each: -each.ledgers)[:REASONS_SHOWN_MAX]
    why = "; ".join(f"{each.reason} ({_count(each.ledgers)})" for each in reasons)
    return f", {at_least}{_blocked_count(status)} blocked: {why}"


def _lost_text(status: RepairStatus) -> str:
    if not status.lost_ledgers:
        return ""
    return f"{_count(status.lost_ledgers)} with lost entries: quire repair list --lost"


def _count(ledgers: int) -> str:
    return "1 ledger" if ledgers == 1 else f"{ledgers} ledgers"


async def read_summary(cluster: Cluster) -> RepairSummary:
    """Read everything that the metadata says about repair."""
    store, rng = cluster.store, cluster.rng
    known = await cluster.cookies.list_bookie_ids()
    return RepairSummary(
        now_ms=wall_clock_ms(),
        settings=await RepairSettingsStore(store, rng).get(),
        auditor_id=await read_auditor_id(store),
        status=await StatusStore(store, rng).get(),
        workers=await store.children(REPAIR_WORKERS, fresh=True),
        published=await JobStore(store, rng).published(),
        claims=await ClaimStore(store, rng).get_all(),
        not_up=[each for each in known if each not in cluster.directory.bookies],
        lifecycles=await LifecycleStore(store, rng).get_all(),
        scrubs=await ScrubStore(store, rng).get_all(),
    )


def scrubs_as_json(
    records: Mapping[BookieId, ScrubRecord], settings: RepairSettings, now_ms: int
) -> list[dict[str, Json]]:
    """Return one row for each bookie, in the order of their ids."""
    return [
        {
            "id": bookie_id,
            "scrub": scrub_text(record, settings, now_ms),
            "checked_bytes": record.checked_bytes,
            "began_ms": record.began_ms or None,
            "ended_ms": record.ended_ms or None,
            "bad_entries": record.bad_entries,
            "bad_ranges": [list(each) for each in record.bad],
        }
        for bookie_id, record in sorted(records.items())
    ]


def scrub_text(record: ScrubRecord, settings: RepairSettings, now_ms: int) -> str:
    """Return what a bookie's scrub does now, or when the last one ended."""
    if record.is_unreadable:
        return "unreadable, `quire repair scrub --now ID` writes a new record"
    requested_ms = max(record.requested_ms, settings.scrub_requested_ms)
    if not settings.scrub_bytes_per_s:
        return f"off, {_ended_text(record, now_ms)}"
    if record.position is not None:
        place = f"at ledger {record.position.ledger_id}"
        return f"under way since {_age(now_ms, record.began_ms)}, {place}"
    if requested_ms > record.served_ms:
        return f"requested, {_ended_text(record, now_ms)}"
    return _ended_text(record, now_ms)


def _ended_text(record: ScrubRecord, now_ms: int) -> str:
    if not record.ended_ms:
        return "none ended yet"
    return f"ended {_age(now_ms, record.ended_ms)} ago"


def _age(now_ms: int, then_ms: int) -> str:
    return describe_duration(max(0, now_ms - then_ms) / 1000)

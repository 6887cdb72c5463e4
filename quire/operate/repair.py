"""Repair as operators see it: its state and that of scrubs, its jobs, and why a ledger is not
repaired yet.

Source: protocol rules 9.1, 9.3 and 9.12; docs/repair.md, "Scrub".
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ledger_client.cluster_access import Cluster, read_ledger, wall_clock_ms
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId, LedgerId
from metadata.ledgers.copies import copies_of
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.paths import REPAIR_WORKERS
from metadata.repair.auditor_election import read_auditor_id
from metadata.repair.claims import Claim, ClaimStore
from metadata.repair.job_store import JOBS_MAX, JobStore
from metadata.repair.jobs import BYTES_MAX, Job, JobName, JobState
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.scrub import ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsStore
from metadata.repair.status import BLOCKED_REASONS_MAX, RepairStatus
from metadata.repair.status_store import StatusStore
from quire.errors import CommandError
from quire.operate.assessment import IF_GONE, START, next_step
from quire.operate.fields import Json, describe_bytes, describe_duration
from quire.operate.findings import names
from quire.repair.bad_entries import BadEntries, bad_entries
from quire.repair.needs import (
    Cause,
    RepairClass,
    class_without_copies,
    closed_fragments,
    holders_of,
    needs_of,
)
from quire.repair.publishing import REQUESTED
from quire.repair.standing import Standing, Standings, standing_of

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
            known = {bookie.bookie_id: bookie.since_ms for bookie in self.status.away}
        delay_ms = 1000 * self.settings.lost_after_s
        return {
            bookie: max(0, known[bookie] + delay_ms - self.now_ms) if bookie in known else None
            for bookie in self.not_up
            if self._state_of(bookie) is Lifecycle.ACTIVE
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
        row["claims"] = [claim_as_json(claim, self.now_ms) for claim in self.claims]
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
        totals = [total for total in status.totals if total.urgency != RepairClass.LOST]
        return {
            "audited_ms": status.audited_ms,
            "written_ms": status.written_ms,
            "ledgers_left": sum(total.ledgers for total in totals),
            "ledgers_blocked": _blocked_count(status),
            "bytes_left": status.bytes_left,
            "copied_bytes": self._copied_bytes,
            "bytes_per_s": max(status.bytes_per_s, self._claims_bytes_per_s),
            "eta_s": self._eta_s(status),
            "lost_ledgers": status.lost_ledgers,
            "classes": [
                {
                    "class": total.urgency,
                    "what": urgency_text(total.urgency),
                    "ledgers": total.ledgers,
                    "bytes": total.size_bytes,
                }
                for total in status.totals
            ],
            "blocked": [
                {"reason": total.reason, "ledgers": total.ledgers} for total in status.blocked
            ],
        }

    @property
    def _copied_bytes(self) -> int:
        """Bytes that the workers have copied of the ledgers that they repair now."""
        return sum(min(claim.copied_bytes, claim.total_bytes) for claim in self.claims)

    @property
    def _claims_bytes_per_s(self) -> int:
        """Bytes per second of the ledgers that are repaired now, each since its claim. The auditor
        counts the bytes of a ledger only once it is done.
        """
        ages_s = [max(1.0, (self.now_ms - claim.since_ms) / 1000) for claim in self.claims]
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
        counted = sum(total.ledgers for total in status.totals if total.urgency != RepairClass.LOST)
        # Ledgers that only an open fragment or an operator's request concerns have jobs alone.
        jobs = sum(job_name.urgency != RepairClass.LOST for job_name in self.published)
        ledgers, blocked = max(counted, jobs), _blocked_count(status)
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
            bookie
            for bookie, record in self.lifecycles.items()
            if record.state in UNCOUNTED and record.since_ms > status.written_ms
        ]

    def _changed_text(self, status: RepairStatus) -> str:
        changed = self._changed_since(status)
        if not changed:
            return ""
        states = ", ".join(
            f"{bookie} is {self._state_of(bookie)}" for bookie in changed[:NAMES_SHOWN_MAX]
        )
        return f"{states}, which the auditor has not counted yet"

    def _damaged_without_job(self) -> Mapping[LedgerId, int]:
        """Return the ledgers with damaged entries that have no job, and the number of entries."""
        have_jobs = {job_name.ledger_id for job_name in self.published}
        counts = Counter[LedgerId]()
        for bookie_id, record in self.scrubs.items():
            if self._state_of(bookie_id) not in (Lifecycle.LOST, Lifecycle.REMOVED):
                for bad in record.bad:
                    counts[bad.ledger_id] += bad.last_entry_id - bad.first_entry_id + 1
        return {id_: counts[id_] for id_ in sorted(counts) if id_ not in have_jobs}

    def _damage_text(self) -> str:
        damaged = self._damaged_without_job()
        if not damaged:
            return ""
        first, entries = next(iter(damaged)), sum(damaged.values())
        what = "1 damaged entry has" if entries == 1 else f"{entries} damaged entries have"
        return f"{what} no job, see quire repair explain {first}"

    def _away_text(self) -> str:
        away = self.away
        if not away:
            return ""
        dues = [due for due in away.values() if due is not None]
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
    return sum(total.ledgers for total in status.blocked)


def _blocked_text(status: RepairStatus) -> str:
    """Return how many ledgers are blocked, and the most frequent reasons."""
    if not status.blocked:
        return ""
    at_least = "at least " if len(status.blocked) >= BLOCKED_REASONS_MAX else ""
    reasons = sorted(status.blocked, key=lambda row: -row.ledgers)[:REASONS_SHOWN_MAX]
    why = "; ".join(f"{reason.reason} ({_count(reason.ledgers)})" for reason in reasons)
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
        not_up=[bookie for bookie in known if bookie not in cluster.directory.bookies],
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
            "bad_ranges": [list(bad_range) for bad_range in record.bad],
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


class Unrepaired(StrEnum):
    """Why damaged entries are not repaired where they are."""

    OPEN = (
        "once the fragment, or an in-sync ledger, is closed: until then its writer may change them"
    )
    NOT_A_MEMBER = "not needed: the ledger does not name this bookie for these entries"
    LOST = "not needed: the loss of these entries was accepted"
    AFTER_THE_END = "not needed: the ledger ends before these entries"


@dataclass(frozen=True, slots=True)
class DamagedPart:
    """Damaged entries of one fragment on one bookie."""

    entries: BadEntries
    why_not: Unrepaired | None
    """None if they are repairable."""


def damaged_parts(
    ledger: LedgerMetadata, scrubs: Mapping[BookieId, ScrubRecord]
) -> list[DamagedPart]:
    """Return all damaged entries of a ledger, by bookie, in the order of entries."""
    damaged: list[DamagedPart] = []
    for bookie_id, record in sorted(scrubs.items()):
        reported = record.bad_of(ledger.ledger_id)
        parts = [DamagedPart(entry, None) for entry in bad_entries(ledger, bookie_id, reported)]
        for start, end, why_not in _spans_without_repair(ledger, bookie_id):
            for bad in reported:
                first, last = max(bad.first_entry_id, start), min(bad.last_entry_id, end)
                if first <= last:
                    entries = BadEntries(bookie_id, EntryId(first), EntryId(last))
                    parts.append(DamagedPart(entries, why_not))
        damaged += sorted(parts, key=lambda part: part.entries.first_entry_id)
    return damaged


def _spans_without_repair(
    ledger: LedgerMetadata, bookie_id: BookieId
) -> Iterator[tuple[int, int, Unrepaired]]:
    """Yield first and last entry of each span in which a bookie's damaged entries stay."""
    closed = closed_fragments(ledger)
    last = ledger.last_entry_id if ledger.state is LedgerState.CLOSED else None
    end = ENTRY_ID_MAX if last is None else last
    for fragment in copies_of(ledger):
        first = fragment.first_entry_id
        fragment_end = end if fragment.last_entry_id is None else fragment.last_entry_id
        if bookie_id not in fragment.ensemble:
            yield first, fragment_end, Unrepaired.NOT_A_MEMBER
        elif fragment not in closed:
            yield first, fragment_end, Unrepaired.OPEN
        else:
            for lost_range in ledger.lost:
                last_lost = min(lost_range.last_entry_id, fragment_end)
                yield max(lost_range.first_entry_id, first), last_lost, Unrepaired.LOST
    if last is not None:
        yield last + 1, ENTRY_ID_MAX, Unrepaired.AFTER_THE_END


NO_COPY: Final = (
    "any copy of some entries: bring one of its bookies back, or accept the loss with `quire "
    "ledger accept-loss`"
)
CAUSES: Mapping[Cause, str] = {
    Cause.GONE: "a copy in place of that of {}, which is gone",
    Cause.UNPROVEN: "a copy in place of that of {}, which may have lost entries",
    Cause.DRAINING: "a copy in place of that of {}, which drains",
    Cause.SHORT: "one more member",
}
LEAVING: Mapping[Standing, str] = {
    Standing.GONE: "is gone",
    Standing.UNPROVEN: "may have lost entries",
    Standing.DRAINING: "drains",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One ledger, and what the metadata says about its repair.

    The damaged parts that are repairable are those of `quire.repair.bad_entries`.
    """

    ledger: LedgerMetadata
    up: Container[BookieId]
    lifecycles: Mapping[BookieId, BookieLifecycle]
    scrubs: Mapping[BookieId, ScrubRecord]
    settings: RepairSettings
    auditor_id: str | None
    published: Sequence[JobName]
    """All published jobs, in their order."""
    job: Job | None
    claim: Claim | None
    now_ms: int

    @property
    def standings(self) -> Standings:
        """Return the standings of all bookies that have a state."""
        known = {
            lifecycle: standing_of(self._state(lifecycle).state, is_up=lifecycle in self.up)
            for lifecycle in self.lifecycles
        }
        return Standings({id_: known[id_] for id_ in known if known[id_] is not Standing.GOOD})

    @property
    def urgency(self) -> RepairClass | None:
        """Return the class of the needs of the closed fragments; None if there are none."""
        holders, quorum = holders_of(self.ledger), self.ledger.quorum
        damaged = [
            part.entries.bookie_id
            for part in self._damaged
            if part.why_not is None
            and part.entries.bookie_id in self.up
            and self.standings.has_copy(part.entries.bookie_id)
        ]
        return class_without_copies(holders, quorum, self.standings, damaged)

    @property
    def sentence(self) -> str:
        """Return what happens to the ledger next, in one sentence."""
        if self.job is None:
            return self._without_job()
        if self.job.state is not JobState.QUEUED:
            return f"{str(self.job.state).capitalize()}: {self.job.blocked_reason}."
        if self.claim is not None:
            to = f" to {self.claim.target}" if self.claim.target else ""
            return f"Worker {self.claim.worker_id} repairs it: {copied_text(self.claim)}{to}."
        if self.settings.paused_until_ms > self.now_ms:
            return "Repair is paused: `quire repair resume` ends the pause."
        if self.job.blocked_reason:
            return f"It waits, and is tried again each minute: {self.job.blocked_reason}."
        before = sum(job_name < self.job.name for job_name in self.published)
        return f"A worker repairs it in its turn: {before} jobs come before it."

    def as_json(self) -> dict[str, Json]:
        """Return the sentence, and every fragment with what it lacks."""
        urgency = self.urgency
        return {
            "ledger": self.ledger.ledger_id,
            "state": str(self.ledger.state),
            "repair": self.sentence,
            "class": None if urgency is None else int(urgency),
            "what": None if urgency is None else urgency_text(urgency),
            "fragments": [self._fragment(fragment) for fragment in self.ledger.fragments],
            "damaged": [
                {
                    "bookie": part.entries.bookie_id,
                    "first_entry_id": part.entries.first_entry_id,
                    "last_entry_id": part.entries.last_entry_id,
                    "repair": self._fate_of(part),
                }
                for part in self._damaged
            ],
        }

    @property
    def _damaged(self) -> list[DamagedPart]:
        """All damaged entries of the ledger."""
        return damaged_parts(self.ledger, self.scrubs)

    @property
    def _damage_to_repair(self) -> list[BadEntries]:
        """Damaged entries that make a job: those on bookies that are up and stay."""
        return [
            part.entries
            for part in self._damaged
            if part.why_not is None
            and part.entries.bookie_id in self.up
            and self.standings.of(part.entries.bookie_id) is Standing.GOOD
        ]

    def _fate_of(self, part: DamagedPart) -> str:
        """Return when damaged entries are repaired, or why they are not."""
        bookie_id = part.entries.bookie_id
        if part.why_not is not None:
            return part.why_not
        standing = self.standings.of(bookie_id)
        if standing is not Standing.GOOD:
            return f"not on this bookie, which {LEAVING[standing]}: other bookies get its copies"
        if bookie_id not in self.up:
            return "once this bookie is up again; if it is lost, other bookies get its copies"
        return "by a job, which is not published yet" if self.job is None else "by the ledger's job"

    def _fragment(self, fragment: Fragment) -> dict[str, Json]:
        first = fragment.first_entry_id
        needs = [e for e in needs_of(self.ledger, self.standings) if e.first_entry_id == first]
        lacks = [CAUSES[need.cause].format(need.replaces) for need in needs if not need.is_lost]
        if any(need.is_lost for need in needs):
            lacks.insert(0, NO_COPY)
        is_open = first not in [part.first_entry_id for part in closed_fragments(self.ledger)]
        away = [id_ for id_ in fragment.ensemble if self.standings.of(id_) is not Standing.GOOD]
        if is_open and away:
            lacks.append(f"{', '.join(away)}: the open fragment's writer replaces it")
        damaged = self._damage_to_repair
        within = self.ledger.fragment_of
        lacks += [
            f"a good copy of {e.text}" for e in damaged if within(e.first_entry_id) == fragment
        ]
        return {
            "first_entry_id": first,
            "is_open": is_open,
            "bookies": {bookie: self._describe(bookie) for bookie in fragment.ensemble},
            "incoming": list(fragment.incoming),
            "lacks": lacks,
        }

    def _without_job(self) -> str:
        has_needs = bool(needs_of(self.ledger, self.standings) or self._damage_to_repair)
        is_open = self.ledger.state is not LedgerState.CLOSED
        members = self.ledger.last_fragment.ensemble if is_open else ()
        if not has_needs and all(self.standings.of(e) is Standing.GOOD for e in members):
            named = dict.fromkeys(b for part in self.ledger.fragments for b in part.ensemble)
            away = [bookie for bookie in named if bookie not in self.up]
            if not away and any(part.why_not is Unrepaired.OPEN for part in self._damaged):
                return (
                    "It needs no repair yet: damaged entries of its open fragment are repaired "
                    "once the fragment is closed."
                )
            if not away:
                return "It needs no repair."
            wait_s = self.settings.lost_after_s
            if len(away) > 1:
                return (
                    f"It needs no repair yet: {', '.join(away)} are not up, and each counts as "
                    f"lost when it has been away for {wait_s} s."
                )
            return (
                f"It needs no repair yet: {away[0]} is not up, and counts as lost when it has been "
                f"away for {wait_s} s."
            )
        if self.auditor_id is None:
            return "No auditor runs, so no job is published for it: start a bookie with repair."
        if len(self.published) >= JOBS_MAX:
            return f"It waits: the {len(self.published)} most urgent jobs are published first."
        return "The auditor has not published a job for it yet: `quire repair run` does."

    def _describe(self, bookie_id: BookieId) -> str:
        state = self._state(bookie_id).state
        presence = "up" if bookie_id in self.up else "not up"
        return presence if state is Lifecycle.ACTIVE else f"{presence}, {state}"

    def _state(self, bookie_id: BookieId) -> BookieLifecycle:
        return self.lifecycles.get(bookie_id, UNCHANGED)


def job_of(published: Sequence[JobName], ledger_id: LedgerId) -> JobName | None:
    """Return the first job of a ledger."""
    return next((job_name for job_name in published if job_name.ledger_id == ledger_id), None)


async def read_explanation(cluster: Cluster, ledger: LedgerMetadata, now_ms: int) -> Explanation:
    """Read what the explanation of one ledger needs. Raises MetadataError."""
    store, rng, ledger_id = cluster.store, cluster.rng, ledger.ledger_id
    jobs = JobStore(store, rng)
    published = await jobs.published()
    name, job = job_of(published, ledger_id), None
    if name is not None:
        with contextlib.suppress(NodeNotFoundError):  # a worker has just done it
            job, _ = await jobs.get(name)
    claims = await ClaimStore(store, rng).get_all()
    return Explanation(
        ledger=ledger,
        up=dict(cluster.directory.bookies),
        lifecycles=await LifecycleStore(store, rng).get_all(),
        scrubs=await ScrubStore(store, rng).get_all(),
        settings=await RepairSettingsStore(store, rng).get(),
        auditor_id=await read_auditor_id(store),
        published=published,
        job=job,
        claim=next((claim for claim in claims if claim.ledger_id == ledger_id), None),
        now_ms=now_ms,
    )


REQUESTS_MAX: Final = 100
"""Maximum number of jobs that operators publish in addition to JOBS_MAX of the auditor."""
READS_AT_ONCE: Final = 64


class TooManyJobsError(CommandError):
    """So many jobs are published already that more would not be done earlier."""


async def request_repair(cluster: Cluster, ledger_ids: Sequence[LedgerId]) -> dict[LedgerId, bool]:
    """Publish jobs of the first class for ledgers; return whether each is new. Raises
    LedgerNotFoundError and TooManyJobsError before any is published.
    """
    jobs = JobStore(cluster.store, cluster.rng)
    wanted: list[Job] = []
    for ledger_id in dict.fromkeys(ledger_ids):
        ledger, _ = await read_ledger(cluster, ledger_id)
        name = JobName(RepairClass.LAST_COPY, min(ledger.length or 0, BYTES_MAX), ledger_id)
        wanted.append(Job(name, (REQUESTED,), wall_clock_ms()))
    count = len(await jobs.published())
    if count + len(wanted) > JOBS_MAX + REQUESTS_MAX:
        raise TooManyJobsError(
            f"{count} jobs are published already: no job was added; wait until some are done",
            try_next="quire repair status --watch",
        )
    added = {
        job.ledger_id: await jobs.publish(job) or await _queue_again(jobs, job) for job in wanted
    }
    await jobs.announce()
    return added


async def read_jobs(
    cluster: Cluster, urgency: int | None = None, ledger_id: LedgerId | None = None
) -> list[Job]:
    """Read the published jobs in their order, of one class or ledger if that is given."""
    jobs = JobStore(cluster.store, cluster.rng)
    names = [
        job_name
        for job_name in await jobs.published()
        if urgency in (None, job_name.urgency) and ledger_id in (None, job_name.ledger_id)
    ]
    return await jobs_named(cluster, names)


async def jobs_named(cluster: Cluster, names: Sequence[JobName]) -> list[Job]:
    """Read jobs in the given order, without those that a worker has just done."""
    jobs, named = JobStore(cluster.store, cluster.rng), list[Job]()
    for start in range(0, len(names), READS_AT_ONCE):
        some = names[start : start + READS_AT_ONCE]
        named += filter(None, await asyncio.gather(*(_read(jobs, name) for name in some)))
    return named


async def jobs_as_json(cluster: Cluster, jobs: Sequence[Job]) -> list[dict[str, Json]]:
    """Return the fields of jobs, with the workers that do them."""
    claims = await ClaimStore(cluster.store, cluster.rng).get_all()
    by_ledger = {claim.ledger_id: claim for claim in claims}
    return [job_as_json(job, by_ledger.get(job.ledger_id)) for job in jobs]


def job_as_json(job: Job, claim: Claim | None) -> dict[str, Json]:
    """Return the fields of a job, with the worker that does it."""
    return {
        "ledger": job.ledger_id,
        "class": job.name.urgency,
        "what": urgency_text(job.name.urgency),
        "state": str(job.state),
        "bytes": job.name.size_bytes,
        "since_ms": job.since_ms,
        "worker": None if claim is None else claim.worker_id,
        "copied_bytes": None if claim is None else claim.copied_bytes,
        "reasons": list(job.reasons),
        "blocked_reason": job.blocked_reason or None,
    }


async def _queue_again(jobs: JobStore, job: Job) -> bool:
    """Store a job in place of a blocked one of the same name; return whether there was one."""
    try:
        known, version = await jobs.get(job.name)
    except NodeNotFoundError:  # a worker has just done it
        return False
    return known.state is JobState.BLOCKED and await jobs.change(job, version) is not None


async def _read(jobs: JobStore, name: JobName) -> Job | None:
    try:
        return (await jobs.get(name))[0]
    except NodeNotFoundError:
        return None
    except MetadataFormatError as error:
        return Job(name, (), 0, JobState.BLOCKED, f"its record is unreadable: {error.why}")

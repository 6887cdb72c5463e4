"""What each fragment of a ledger lacks, which entries are damaged, and why it is not repaired yet.

Leaves what a ledger needs to `quire.repair.needs`.

Invariant: the damaged parts that are repairable are those of `quire.repair.bad_entries`.

Source: protocol rules 9.1, 9.3 and 9.12; docs/repair.md, "Scrub".
"""

import contextlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.errors import NodeNotFoundError
from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId, LedgerId
from metadata.ledgers.copies import copies_of
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.repair.auditor_election import read_auditor_id
from metadata.repair.claims import Claim, ClaimStore
from metadata.repair.job_store import JOBS_MAX, JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.scrub import ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings import RepairSettings
from metadata.repair.settings_store import RepairSettingsStore
from quire.operate.fields import Json
from quire.operate.repair_summary import copied_text, urgency_text
from quire.repair.bad_entries import BadEntries, bad_entries
from quire.repair.needs import (
    Cause,
    RepairClass,
    class_without_copies,
    closed_fragments,
    holders_of,
    needs_of,
)
from quire.repair.standing import Standing, Standings, standing_of


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
    found: list[DamagedPart] = []
    for bookie_id, record in sorted(scrubs.items()):
        reported = record.bad_of(ledger.ledger_id)
        parts = [DamagedPart(each, None) for each in bad_entries(ledger, bookie_id, reported)]
        for start, end, why_not in _spans_without_repair(ledger, bookie_id):
            for each in reported:
                first, last = max(each.first_entry_id, start), min(each.last_entry_id, end)
                if first <= last:
                    entries = BadEntries(bookie_id, EntryId(first), EntryId(last))
                    parts.append(DamagedPart(entries, why_not))
        found += sorted(parts, key=lambda part: part.entries.first_entry_id)
    return found


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
            for each in ledger.lost:
                last_lost = min(each.last_entry_id, fragment_end)
                yield max(each.first_entry_id, first), last_lost, Unrepaired.LOST
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
    """One ledger, and what the metadata says about its repair."""

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
        found = {
            each: standing_of(self._state(each).state, is_up=each in self.up)
            for each in self.lifecycles
        }
        return Standings({each: found[each] for each in found if found[each] is not Standing.GOOD})

    @property
    def urgency(self) -> RepairClass | None:
        """Return the class of the needs of the closed fragments; None if there are none."""
        holders, quorum = holders_of(self.ledger), self.ledger.quorum
        damaged = [
            each.entries.bookie_id
            for each in self._damaged
            if each.why_not is None
            and each.entries.bookie_id in self.up
            and self.standings.has_copy(each.entries.bookie_id)
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
        before = sum(each < self.job.name for each in self.published)
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
            "fragments": [self._fragment(each) for each in self.ledger.fragments],
            "damaged": [
                {
                    "bookie": each.entries.bookie_id,
                    "first_entry_id": each.entries.first_entry_id,
                    "last_entry_id": each.entries.last_entry_id,
                    "repair": self._fate_of(each),
                }
                for each in self._damaged
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
            each.entries
            for each in self._damaged
            if each.why_not is None
            and each.entries.bookie_id in self.up
            and self.standings.of(each.entries.bookie_id) is Standing.GOOD
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
        lacks = [CAUSES[each.cause].format(each.replaces) for each in needs if not each.is_lost]
        if any(each.is_lost for each in needs):
            lacks.insert(0, NO_COPY)
        is_open = first not in [each.first_entry_id for each in closed_fragments(self.ledger)]
        away = [each for each in fragment.ensemble if self.standings.of(each) is not Standing.GOOD]
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
            "bookies": {each: self._describe(each) for each in fragment.ensemble},
            "incoming": list(fragment.incoming),
            "lacks": lacks,
        }

    def _without_job(self) -> str:
        has_needs = bool(needs_of(self.ledger, self.standings) or self._damage_to_repair)
        is_open = self.ledger.state is not LedgerState.CLOSED
        members = self.ledger.last_fragment.ensemble if is_open else ()
        if not has_needs and all(self.standings.of(e) is Standing.GOOD for e in members):
            named = dict.fromkeys(b for each in self.ledger.fragments for b in each.ensemble)
            away = [each for each in named if each not in self.up]
            if not away and any(each.why_not is Unrepaired.OPEN for each in self._damaged):
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
    return next((each for each in published if each.ledger_id == ledger_id), None)


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
        claim=next((each for each in claims if each.ledger_id == ledger_id), None),
        now_ms=now_ms,
    )

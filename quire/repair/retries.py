"""When a blocked job is tried again, and which blocked ledgers have no job meanwhile. Pure.

A change is what may let a repair succeed, or gives it more to do: a bookie joins or becomes
writable; copies on a bookie count no more; the metadata of the ledger changed, or more of its
entries are found damaged or missing. A bookie that only leaves helps none.

Leaves storing the jobs to `quire.repair.auditor`, and jobs without any copy to
`quire.repair.publishing`.

Invariants: a blocked job is due until it is stored as queued, also if storing it fails. What a
worker found counts only if the job was queued after the latest change: an attempt that began before
it may end after it. A worker may see a change late, so a job that is blocked after that is tried
once more. So each change leads to a bounded number of attempts, and none is made without a change.
At most PUBLISHED_MAX jobs that wait for a change stay published: others could not be published
beside them. The ledgers of the rest are set aside, at most SET_ASIDE_MAX, until the next change.

Source: protocol rule 9.3; docs/repair.md, "The auditor".
"""

import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Final

from metadata.ids import BookieId, LedgerId
from metadata.registry.registration import BookieRegistration
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.scrub import BadRange
from quire.repair.bad_entries import MissingRanges
from quire.repair.standing import Standing

SEEN_AFTER_S: Final = 30.0
"""Time after a change in which a worker may decide by what it saw before: its server of the
metadata service lags, or its connection was lost with the event.
"""
PUBLISHED_MAX: Final = 500
"""Number of published jobs that wait for a change, half of all that may be published."""
SET_ASIDE_MAX: Final = 100_000
"""Number of ledgers that are set aside: about 100 bytes of memory each."""


class Changes:
    """Finder of changes of the cluster and of single ledgers, of one auditor."""

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
        facts = {(each, "registered") for each in up}
        facts |= {(each, "writable") for each, found in up.items() if found.writable}
        facts |= set(by_bookie.items())
        before, self._facts = self._facts, frozenset(facts)
        return before is None or not facts <= before

    def of_ledgers(
        self, bad: Mapping[BookieId, Iterable[BadRange]], missing: MissingRanges
    ) -> set[LedgerId]:
        """Return the ledgers of which other entries are damaged or missing than at the latest
        call: an entry that can be read again may let a repair succeed.
        """
        found = {(bookie_id, each) for bookie_id, ranges in bad.items() for each in ranges}
        changed = {each.ledger_id for _, each in found ^ self._bad}
        changed |= {each for each in missing if missing[each] != self._missing.get(each)}
        self._bad, self._missing = frozenset(found), missing
        return changed


class Retries:
    """Blocked jobs that are to be queued again, of one auditor."""

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
    """Blocked ledgers without a published job, each with the reason, of one auditor."""

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

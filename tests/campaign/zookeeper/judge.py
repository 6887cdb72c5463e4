"""Decision whether the metadata service and its clients kept their promises. Pure.

Leaves the calls to `holder`, and the faults to `faults`.

Judged: a version of the register has one value; what was reported as applied is there, and what was
reported as not applied is not; no session reads an older version than its process knew, also after
it was replaced; an agreed read sees every write that ended before it began; a session ends, and a
call fails, only where a quorum of servers was missing; at all other times a session gets an answer
within SILENCE_S_MAX. A fresh read that is older than an ended write is counted: a replaced leader
may answer it.

Source: protocol rules 1.3 and 1.6; metadata design, "Fresh reads"; ZooKeeper's promises on
sessions.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from metadata.store.interface import SESSION_TIMEOUT_S, SessionState
from tests.campaign.availability import ZOOKEEPER, FaultTime, hit_within
from tests.campaign.zookeeper.record import Read, Record, Write

SETTLED_S: Final = 5.0
"""Time after the return of a quorum, in seconds, within which its clients are connected again."""
SILENCE_S_MAX: Final = SESSION_TIMEOUT_S
"""Maximum time between two answers to a session, in seconds, while there is a quorum."""
EXAMPLES_MAX: Final = 10


@dataclass(slots=True)
class Verdict:
    """Result for all processes of a campaign."""

    complaints: list[str] = field(default_factory=list)
    calls: int = 0
    applied: int = 0
    unknown: int = 0
    stale_fresh_reads: int = 0
    """Fresh reads that returned an older version than a write that had ended."""
    sessions_moved: int = 0
    """Times that a session was suspended and continued."""
    sessions_ended: int = 0
    """Sessions that expired by their process's clock."""
    longest_silence_s: float = 0.0
    """Longest time between two answers to a session while there was a quorum."""

    def complain(self, text: str) -> None:
        """Record a broken promise; of many, some examples are enough."""
        if len(self.complaints) < EXAMPLES_MAX:
            self.complaints.append(text)

    def as_json(self) -> dict[str, Any]:
        """Return the counts for the summary."""
        names = (slot for slot in self.__slots__ if slot != "complaints")
        return {name: getattr(self, name) for name in names}


def judge(records: Sequence[Record], outages: Sequence[FaultTime]) -> Verdict:
    """Judge what all processes recorded; `outages` are the times without a quorum."""
    verdict = Verdict()
    values = _Values(verdict)
    for record in records:
        for complaint in record.complaints:
            verdict.complain(f"{record.name}: {complaint.text}")
        _count(record, verdict)
        _judge_sessions(record, outages, verdict)
        _judge_order(record, verdict)
        values.take(record)
    values.judge_refused(records)
    known = _Known(records)
    for record in records:
        _judge_reads(record, known, outages, verdict)
    return verdict


class _Values:
    """The value of each version, as far as any process knows it."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._values: dict[int, str] = {0: ""}

    def take(self, record: Record) -> None:
        for read in record.reads:
            if read.version is not None:
                self._see(read.version, read.value, record.name)
        for write in record.writes:
            if write.outcome == "applied":
                self._see(write.expected + 1, write.value, record.name)

    def judge_refused(self, records: Sequence[Record]) -> None:
        present = {value: version for version, value in self._values.items()}
        for record in records:
            for write in record.writes:
                if write.outcome in ("conflict", "unavailable") and write.value in present:
                    version = present[write.value]
                    text = f"{write.value}: {write.outcome}, and it is version {version}"
                    self._verdict.complain(f"{record.name}: {text}")

    def _see(self, version: int, value: str, name: str) -> None:
        before = self._values.setdefault(version, value)
        if before != value:
            text = f"version {version} is {value!r}, and it was {before!r}"
            self._verdict.complain(f"{name}: {text}")


class _Known:
    """The newest version that any process knew at a time."""

    def __init__(self, records: Sequence[Record]) -> None:
        steps = sorted(step for record in records for step in _steps(record))
        self._times: list[float] = []
        self._versions: list[int] = []
        newest = 0
        for at, version in steps:
            newest = max(newest, version)
            self._times.append(at)
            self._versions.append(newest)

    def before(self, at: float) -> int:
        index = bisect_right(self._times, at)
        return self._versions[index - 1] if index else 0


def _steps(record: Record) -> Iterator[tuple[float, int]]:
    for read in record.reads:
        if read.version is not None:
            yield read.at, read.version
    for write in record.writes:
        if write.outcome == "applied":
            yield write.at, write.expected + 1


def _count(record: Record, verdict: Verdict) -> None:
    outcomes = [write.outcome for write in record.writes]
    verdict.calls += len(record.reads) + len(record.writes)
    verdict.applied += outcomes.count("applied")
    verdict.unknown += outcomes.count("unknown")


def _judge_sessions(record: Record, outages: Sequence[FaultTime], verdict: Verdict) -> None:
    for before, after in pairwise(record.changes):
        is_same = before.session == after.session
        if after.state == SessionState.EXPIRED:
            verdict.sessions_ended += 1
            began = after.at - SESSION_TIMEOUT_S - SETTLED_S
            if not _is_missing(outages, began, after.at):
                text = f"the session {after.session:x} ended although there was a quorum"
                verdict.complain(f"{record.name}: {text}")
        elif before.state == SessionState.SUSPENDED and is_same:
            verdict.sessions_moved += 1
    answers = sorted(_answer_times(record))
    for earlier, later in pairwise(answers):
        if not _is_missing(outages, earlier - SETTLED_S, later):
            verdict.longest_silence_s = max(verdict.longest_silence_s, round(later - earlier, 2))
            if later - earlier > SILENCE_S_MAX:
                text = f"no answer for {later - earlier:.1f} s although there was a quorum"
                verdict.complain(f"{record.name}: {text}")


def _answer_times(record: Record) -> Iterator[float]:
    for read in record.reads:
        if read.version is not None:
            yield read.at
    for write in record.writes:
        if write.outcome in ("applied", "conflict"):
            yield write.at


def _judge_order(record: Record, verdict: Verdict) -> None:
    """Require that a process never reads an older version than it knew."""
    own = _Known([record])
    for read in record.reads:
        if read.version is not None and read.version < (known := own.before(read.began)):
            text = f"a {read.kind} read returned version {read.version} after {known}"
            verdict.complain(f"{record.name}: {text}")


def _judge_reads(
    record: Record, known: _Known, outages: Sequence[FaultTime], verdict: Verdict
) -> None:
    calls: list[Read | Write] = [*record.reads, *record.writes]
    for call in calls:
        is_failed = call.error != "" if isinstance(call, Read) else call.outcome == "unavailable"
        if is_failed and not _is_missing(outages, call.began - SETTLED_S, call.at):
            text = f"a call failed after {call.at - call.began:.1f} s although there was a quorum"
            verdict.complain(f"{record.name}: {text}")
    for read in record.reads:
        if read.version is None or read.version >= known.before(read.began):
            continue
        if read.kind == "fresh":
            verdict.stale_fresh_reads += 1
        if read.kind == "agreed":
            text = (
                f"an agreed read returned version {read.version} after {known.before(read.began)}"
            )
            verdict.complain(f"{record.name}: {text}")


def _is_missing(outages: Sequence[FaultTime], began: float, ended: float) -> bool:
    return ZOOKEEPER in hit_within(outages, began, ended)

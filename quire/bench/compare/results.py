"""Figures of one run, and their conversion to JSON and back.

Leaves computing them to `quire.bench.compare.measuring` and files to `quire.bench.compare.runner`.

Format: one object per run. Keys that the OpenMessaging benchmark has are spelled as in that
benchmark (rates per second, latencies in milliseconds; `publishRate`, `publishErrorRate` and the
`publishLatency...` lists have one value per second of the run, `aggregated...` keys are of the
complete run; latencies count from the intended time, as in that benchmark). Everything else is
under `quire`.

Invariant: reading a written result gives an equal value.

Source: openmessaging/benchmark, TestResult.java.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from quire.bench.compare.durability import LedgerSafety
from quire.bench.compare.histogram import Histogram
from quire.bench.compare.injection import InjectionMark
from quire.bench.compare.measuring import AtAckQuorum, MemberChange, Silence, Slice, Zones

QUANTILES: Final = {
    "50pct": 0.5, "75pct": 0.75, "95pct": 0.95, "99pct": 0.99, "999pct": 0.999, "9999pct": 0.9999,
}  # fmt: skip
CURVE: Final = (
    0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 1.0
)  # fmt: skip

Fields = Mapping[str, Any]
"""A decoded JSON object, as read from a file."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Scenario, configuration, rate and repetition of one run."""

    configuration: str
    scenario: str
    rate: float
    repetition: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """Effect of a writer's death, in seconds since the kill."""

    closed_s: float | None
    """Time until the successor had recovered and closed the ledger."""
    first_ack_s: float | None
    """Time until the new ledger acknowledged an append."""


@dataclass(frozen=True, slots=True)
class PerSecond:
    """Appends in each second of the run."""

    acked: tuple[int, ...]
    due: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """All results of one run."""

    cell: Cell
    seconds: float
    entry_bytes: int
    latency: Histogram = field(compare=False)
    per_second: PerSecond
    slices: tuple[Slice, ...]
    """Slices finer than a second, for the picture of latency over time."""
    unacknowledged_count: int
    failed_appends: int
    """Number of appends that failed and were repeated."""
    refused_count: int
    """Number of times that the client accepted no append because too few replicas were in sync."""
    late_ms_max: float
    """Maximum delay of the load generator itself behind its schedule."""
    silence: Silence
    marks: tuple[InjectionMark, ...]
    """Faults, with their times in seconds from the start."""
    changes: tuple[MemberChange, ...]
    at_ack_quorum: AtAckQuorum
    zones: Zones | None
    written_bytes_per_entry: float | None
    sent_bytes_per_entry: float | None
    safety: tuple[LedgerSafety, ...]
    takeover: Takeover | None = None
    events: Mapping[str, int] = field(default_factory=dict)
    """Number of events of each kind that the client reported."""

    @property
    def losable_bookies(self) -> int:
        """Number of bookies that may be lost without loss of any ledger's acknowledged entry."""
        return min((each.losable_bookies for each in self.safety), default=-1)

    @property
    def recoverable_without(self) -> int:
        """Number of members that may be away while the recovery of every ledger can decide."""
        return min((each.recoverable_without for each in self.safety), default=-1)

    @property
    def short_count(self) -> int:
        """Number of acknowledged entries with fewer copies than the write quorum at the end."""
        return sum(each.short_count for each in self.safety)

    @property
    def lost_count(self) -> int:
        """Number of acknowledged entries without a copy at the end."""
        return sum(each.lost_count for each in self.safety)


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A failed run, and the reason."""

    cell: Cell
    reason: str


def to_json(run: RunResult) -> dict[str, Any]:
    """Return a run as JSON values."""
    latency, seconds = run.latency, run.per_second.due
    whole: dict[str, Any] = {
        "workload": run.cell.scenario,
        "driver": f"quire {run.cell.configuration}",
        "messageSize": run.entry_bytes,
        "topics": 1,
        "partitions": 1,
        "producersPerTopic": 1,
        "consumersPerTopic": 0,
        "publishRate": list(run.per_second.acked),
        "publishErrorRate": [run.failed_appends / run.seconds],
        "publishLatency50pct": [each.p50_ms for each in seconds],
        "publishLatency99pct": [each.p99_ms for each in seconds],
        "publishLatencyMax": [each.max_ms for each in seconds],
        "aggregatedPublishLatencyAvg": latency.mean_us / 1e3,
    }
    for name, share in QUANTILES.items():
        whole[f"aggregatedPublishLatency{name}"] = latency.quantile_us(share) / 1e3
    whole["aggregatedPublishLatencyMax"] = latency.max_us / 1e3
    whole["aggregatedPublishLatencyQuantiles"] = {
        f"{share * 100:g}": latency.quantile_us(share) / 1e3 for share in CURVE
    }
    derived = {
        "losable_bookies": run.losable_bookies,
        "recoverable_without": run.recoverable_without,
        "short_count": run.short_count,
        "lost_count": run.lost_count,
    }
    own = {name: value for name, value in _plain(run).items() if name != "latency"}
    return {**whole, "quire": {**own, "derived": derived, "latency": latency.as_json()}}


def failure_to_json(run: FailedRun) -> dict[str, Any]:
    """Return a failed run as JSON values."""
    return {"workload": run.cell.scenario, "driver": f"quire {run.cell.configuration}"} | {
        "quire": {"cell": asdict(run.cell), "failed": run.reason}
    }


def of_json(whole: Fields) -> RunResult | FailedRun:
    """Read what `to_json` or `failure_to_json` returned."""
    own: Fields = whole["quire"]
    cell = Cell(**own["cell"])
    if "failed" in own:
        return FailedRun(cell, own["failed"])
    zones, takeover = own["zones"], own["takeover"]
    return RunResult(
        cell=cell,
        seconds=own["seconds"],
        entry_bytes=own["entry_bytes"],
        latency=Histogram.of_json(own["latency"]),
        per_second=PerSecond(tuple(own["per_second"]["acked"]), _slices(own["per_second"]["due"])),
        slices=_slices(own["slices"]),
        unacknowledged_count=own["unacknowledged_count"],
        failed_appends=own["failed_appends"],
        refused_count=own["refused_count"],
        late_ms_max=own["late_ms_max"],
        silence=Silence(**own["silence"]),
        marks=tuple(InjectionMark(**each) for each in own["marks"]),
        changes=tuple(
            MemberChange(**{**each, "replaced": tuple(each["replaced"])}) for each in own["changes"]
        ),
        at_ack_quorum=AtAckQuorum(**own["at_ack_quorum"]),
        zones=Zones(**{**zones, "short": _pairs(zones["short"])}) if zones else None,
        written_bytes_per_entry=own["written_bytes_per_entry"],
        sent_bytes_per_entry=own["sent_bytes_per_entry"],
        safety=tuple(
            LedgerSafety(**{**each, "copies": _pairs(each["copies"])}) for each in own["safety"]
        ),
        takeover=Takeover(**takeover) if takeover else None,
        events=own["events"],
    )


def _plain(run: RunResult) -> dict[str, Any]:
    def skip_histogram(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in items if not isinstance(value, Histogram)}

    return asdict(run, dict_factory=skip_histogram)


def _slices(values: Sequence[Fields]) -> tuple[Slice, ...]:
    return tuple(Slice(**each) for each in values)


def _pairs(values: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in values)

"""Figures of one run, and their conversion to JSON and back.

Format: one object per run. Keys that the OpenMessaging benchmark has are spelled as in that
benchmark (rates per second, latencies in milliseconds; `publishRate`, `publishErrorRate` and the
`publishLatency...` lists have one value per second of the run, `aggregated...` keys are of the
complete run; latencies count from the intended time, as in that benchmark). Everything else is
under `quire`.

Invariant: reading a written result gives an equal value.

Source: openmessaging/benchmark, TestResult.java.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from math import isfinite
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from quire.bench.durability import LedgerSafety
from quire.bench.injection import InjectionMark
from quire.bench.measuring import AppendGap, AtAckQuorum, Histogram, MemberChange, Slice, Zones

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
    silence: AppendGap
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
        return min((safety.losable_bookies for safety in self.safety), default=-1)

    @property
    def recoverable_without(self) -> int:
        """Number of members that may be away while the recovery of every ledger can decide."""
        return min((safety.recoverable_without for safety in self.safety), default=-1)

    @property
    def short_count(self) -> int:
        """Number of acknowledged entries with fewer copies than the write quorum at the end."""
        return sum(safety.short_count for safety in self.safety)

    @property
    def lost_count(self) -> int:
        """Number of acknowledged entries without a copy at the end."""
        return sum(safety.lost_count for safety in self.safety)


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
        "publishLatency50pct": [second.p50_ms for second in seconds],
        "publishLatency99pct": [second.p99_ms for second in seconds],
        "publishLatencyMax": [second.max_ms for second in seconds],
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
    if "failed" in own:
        return FailedRun(_built(Cell, own["cell"]), str(own["failed"]))
    made: RunResult = _built(RunResult, own)
    return made


def _built(kind: Any, value: Any) -> Any:
    """Return a value of a type from its form in JSON. Further keys of an object are left out."""
    if kind is Histogram:
        return Histogram.of_json(value)
    if isinstance(kind, type) and is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(
            **{part.name: _built(types[part.name], value[part.name]) for part in fields(kind)}
        )
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else arguments
        return tuple(_built(*pair) for pair in zip(kinds, value, strict=True))
    if NoneType in arguments:
        return None if value is None else _built(arguments[0], value)
    if kind in (int, float, str):
        _check_plain(kind, value)
    return value


def _check_plain(kind: type, value: Any) -> None:
    """Raise TypeError for a value of another type, and ValueError for a number without a value."""
    allowed = (int, float) if kind is float else kind
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is not a number")


def _plain(run: RunResult) -> dict[str, Any]:
    def skip_histogram(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in items if not isinstance(value, Histogram)}

    return asdict(run, dict_factory=skip_histogram)

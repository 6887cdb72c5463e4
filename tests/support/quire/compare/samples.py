"""Made-up results of runs, for tests of code that reads results."""

from quire.bench.durability import LedgerSafety
from quire.bench.injection import InjectionMark
from quire.bench.measuring import AppendGap, AtAckQuorum, Histogram, MemberChange, Slice, Zones
from quire.bench.results import Cell, PerSecond, RunResult, Takeover

APPENDS_OF_EACH = 10_000


def run_of(
    configuration: str = "all-of-3",
    scenario: str = "killed-bookie",
    rate: float = 100.0,
    repetition: int = 0,
    milliseconds: tuple[float, ...] = (1.0, 2.0, 3.5, 40.0),
) -> RunResult:
    """Return a run of two seconds with the given latencies, each of many appends."""
    slices = (Slice(0.0, 2, 1.5, 2.25, 2.75), Slice(1.0, 2, 3.5, 40.25, 41.5))
    return RunResult(
        cell=Cell(configuration, scenario, rate, repetition),
        seconds=2.0,
        entry_bytes=64,
        latency=_histogram(milliseconds),
        per_second=PerSecond((2, 2), slices),
        slices=slices,
        unacknowledged_count=1,
        failed_appends=3,
        refused_count=4,
        late_ms_max=0.5,
        silence=AppendGap(0.25, 0.2),
        marks=(InjectionMark(0.5, "bookie 1 killed (-9)"),),
        changes=(MemberChange(0.6, 7, ("a",), 0.05), MemberChange(0.9, 7, ("b",), None)),
        at_ack_quorum=AtAckQuorum(9, 0.001, 0.0625, 0.125, 2, 3.5),
        zones=Zones(0.8, 7, 90, 95, 99, ((3, 5), (93, 94))),
        written_bytes_per_entry=210.0,
        sent_bytes_per_entry=None,
        safety=(LedgerSafety(7, "closed", 2, 100, ((2, 1), (3, 99)), 3, 2, 0, 1),),
        takeover=Takeover(0.5, None),
        events={"EnsembleChanged": 2},
    )


def _histogram(milliseconds: tuple[float, ...]) -> Histogram:
    histogram = Histogram()
    for millisecond in milliseconds:
        histogram.record(round(millisecond * 1e3), APPENDS_OF_EACH)
    return histogram

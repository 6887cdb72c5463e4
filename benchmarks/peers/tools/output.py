"""Parsers of the tools' final output.

Leaves running them to `programs`.

Invariants: pure; incomplete output of a tool is OutputError, never a figure; MB are 10^6 bytes,
whatever the tool calls MB.

Source: the lines that the tools of Kafka 4.1.0 and librdkafka 2.15.0 print.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.measures import MEGABYTE, latency_figures
from benchmarks.peers.tools.jobs import Job, Tool

Figures = dict[str, object]

PRODUCED: Final = re.compile(
    r"^(?P<count>\d+) records sent, (?P<rate>[\d.]+) records/sec \([\d.]+ MB/sec\), "
    r"(?P<mean>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, "
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th\.",
    re.MULTILINE,
)
CONSUMED_HEADER: Final = "start.time, end.time, "
ROUND_TRIPS: Final = re.compile(
    r"^Avg latency: (?P<mean>[\d.]+) ms\s+"
    r"^Percentiles: 50th = (?P<p50>\d+), 99th = (?P<p99>\d+), 99.9th = (?P<p999>\d+)",
    re.MULTILINE,
)
RDKAFKA_PRODUCED: Final = re.compile(
    r"^% \d+ messages produced \(\d+ bytes\), (?P<count>\d+) delivered "
    r"\(offset -?\d+, (?P<failed>\d+) failed\) in (?P<ms>\d+)ms: (?P<rate>\d+) msgs/s",
    re.MULTILINE,
)
RDKAFKA_CONSUMED: Final = re.compile(
    r"^% (?P<count>\d+) messages \(\d+ bytes\) consumed in (?P<ms>\d+)ms: (?P<rate>\d+) msgs/s",
    re.MULTILINE,
)
COMPLAINT: Final = re.compile(
    r"^(\[\S+\] (WARN|ERROR) .*"
    r"|[\w.]+(Exception|Error)\b.*"
    r"|%[0-4]\|[\d.]+\|(?!CONFWARN).*"
    r"|% (ERROR|FATAL|THROTTLED|Consume error|Error|produce error|No such).*)$",
    re.MULTILINE,
)
"""A log line at WARN or above, an exception, or an error message of librdkafka's tool. Its warnings
about settings of the other half of a client are caused by the tool."""


TAIL_CHARACTERS: Final = 300


class OutputError(Exception):
    """A tool ended without printing its results."""


def figures_of(job: Job, text: str, latencies: Sequence[str] = ()) -> Figures:
    """Return the figures of a tool. Raises OutputError.

    `latencies` are the lines of librdkafka's file: microseconds, one record each.
    """
    figures = _found(job, text, latencies)
    if isinstance(rate := figures.get("records_per_s"), float):
        figures["MB_per_s"] = rate * job.record_bytes / MEGABYTE
    complaints = complaints_in(text)
    figures["complaint_count"] = len(complaints)
    figures["first_complaint"] = complaints[0] if complaints else None
    figures["failed_count"] = max(0, job.count - int(str(figures["record_count"])))
    return figures


def complaints_in(text: str) -> Sequence[str]:
    """Return the lines with warnings and errors."""
    return [match.group() for match in COMPLAINT.finditer(text)]


def _found(job: Job, text: str, latencies: Sequence[str]) -> Figures:
    match job.tool:
        case Tool.PRODUCER:
            return _produced(text)
        case Tool.CONSUMER:
            return _consumed(text)
        case Tool.END_TO_END:
            return {"record_count": job.count, **_milliseconds(_last(ROUND_TRIPS, text))}
        case Tool.RDKAFKA_PRODUCER:
            return _rdkafka(_last(RDKAFKA_PRODUCED, text), latencies)
        case Tool.RDKAFKA_CONSUMER:
            return _rdkafka(_last(RDKAFKA_CONSUMED, text), latencies)


def _produced(text: str) -> Figures:
    parts = _last(PRODUCED, text)
    counted: Figures = {"record_count": int(parts["count"]), "records_per_s": float(parts["rate"])}
    return {**counted, **_milliseconds(parts)}


def _consumed(text: str) -> Figures:
    """Return the tool's rate of fetching, which leaves out the time before the first fetch."""
    rows = text.splitlines()
    headers = [number for number, row in enumerate(rows) if row.startswith(CONSUMED_HEADER)]
    if not headers or headers[-1] + 1 == len(rows):
        raise OutputError(_tail(text))
    names, values = (row.split(", ") for row in rows[headers[-1] : headers[-1] + 2])
    if len(names) != len(values):
        raise OutputError(_tail(text))
    metrics = dict(zip(names, values, strict=True))
    return {
        "record_count": int(metrics["data.consumed.in.nMsg"]),
        "records_per_s": float(metrics["fetch.nMsg.sec"]),
        "rebalance_ms": float(metrics["rebalance.time.ms"]),
    }


def _rdkafka(parts: Mapping[str, str], latencies: Sequence[str]) -> Figures:
    seconds = [int(line) / 1e6 for line in latencies]
    mean = {"mean_ms": sum(seconds) / len(seconds) * 1e3} if seconds else {}
    return {
        "record_count": int(parts["count"]),
        "records_per_s": float(parts["rate"]),
        **mean,
        **latency_figures(seconds),
    }


def _milliseconds(parts: Mapping[str, str]) -> dict[str, float]:
    names = ("mean", "p50", "p95", "p99", "p999", "max")
    return {f"{name}_ms": float(parts[name]) for name in names if name in parts}


def _last(pattern: re.Pattern[str], text: str) -> Mapping[str, str]:
    matches = [match.groupdict() for match in pattern.finditer(text)]
    if not matches:
        raise OutputError(_tail(text))
    return matches[-1]


def _tail(text: str) -> str:
    return f"it printed no results: {text.strip()[-TAIL_CHARACTERS:]}"

"""Report of a benchmark: one JSON object per line on standard output, text on standard error.

Leaves the arithmetic to `benchmarks.measures`.

Format: every line has `record`: "machine" (facts about the machine), "sample" (one run of one case)
or "figure" (the median of a case's runs, their range and, if there is one, the target and whether
it is met).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from benchmarks.measures import is_met
from quire.bench.figures import spread

UNITS: Final = {
    "MB_per_s": 1,
    "entries_per_s": 0,
    "entries": 0,
    "ms": 3,
    "s": 3,
    "us": 3,
    "ratio": 3,
    "MB": 1,
    "bytes": 0,
}
"""Units of figures, and the number of digits to print."""


class Report:
    """Collector of one benchmark's samples, which prints them as they come."""

    def __init__(self, benchmark: str, output: TextIO | None = None) -> None:
        self._benchmark = benchmark
        self._output = output or sys.stdout
        self._samples: dict[tuple[str, str], list[float]] = {}

    def machine(self, facts: Mapping[str, object]) -> None:
        """Print the facts about the machine."""
        self._print("machine", facts)

    def sample(self, case: str, values: Mapping[str, object]) -> None:
        """Print one run of one case and keep its numbers for `figure`."""
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._samples.setdefault((case, name), []).append(float(value))
        self._print("sample", {"case": case, **values})

    def values(self, case: str, name: str) -> Sequence[float]:
        """Return the numbers with one name in the samples of a case, in order."""
        return self._samples.get((case, name), [])

    def median(self, case: str, name: str) -> float | None:
        """Return the median of those numbers; None without any."""
        values = self.values(case, name)
        return spread(values).median if values else None

    def figure(
        self,
        case: str,
        name: str,
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        values: Sequence[float] | None = None,
    ) -> None:
        """Print the median of a case's samples of `name` (or of `values`) with its target."""
        runs = self.values(case, name) if values is None else values
        if not runs:
            self.note(f"{case}: no {name} was measured")
            return
        over = spread(runs)
        digits = UNITS[unit]
        bounds = {"at_least": at_least, "at_most": at_most}
        wanted = {key: bound for key, bound in bounds.items() if bound is not None}
        line: dict[str, object] = {
            "case": case,
            "figure": name,
            "unit": unit,
            "median": round(over.median, digits),
            "lowest": round(over.low, digits),
            "highest": round(over.high, digits),
            "runs": over.count,
        }
        verdict = ""
        if wanted:
            met = is_met(over.median, wanted)
            line |= {"wanted": wanted, "met": met}
            bound = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in wanted.items())
            verdict = f"  [{'met' if met else 'MISSED'}: {bound}]"
        self._print("figure", line)
        self.note(
            f"{case}: {name} {over.median:.{digits}f} "
            f"({over.low:.{digits}f}..{over.high:.{digits}f}, {over.count} runs){verdict}"
        )

    def note(self, text: str) -> None:
        """Print a remark for people."""
        print(f"{self._benchmark}: {text}", file=sys.stderr, flush=True)

    def _print(self, record: str, values: Mapping[str, object]) -> None:
        line = {"record": record, "benchmark": self._benchmark, **values}
        print(json.dumps(line, default=str), file=self._output, flush=True)

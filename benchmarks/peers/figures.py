"""Figures and ratios of a table as printed records.

Leaves computing them to `benchmarks.peers.table` and their form to `benchmarks.report`.
"""

from benchmarks.peers.table import Table, ratios_by_run
from benchmarks.peers.workloads import Case, Samples
from benchmarks.report import Report


def report_figures(report: Report, samples: Samples, table: Table) -> None:
    """Print a record for each measured figure and ratio."""
    for workload, figures in table.figures.items():
        for shown in figures:
            for subject in table.subjects:
                case = Case(workload, subject)
                if values := list(samples.of(case, shown.name).values()):
                    report.figure(case.name, shown.name, shown.unit, values=values)
    for ratio in table.ratios:
        if runs := ratios_by_run(ratio, samples):
            least, most = ratio.wanted.get("at_least"), ratio.wanted.get("at_most")
            report.figure(ratio.name, "ratio", "ratio", values=runs, at_least=least, at_most=most)

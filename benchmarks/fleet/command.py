"""`python -m benchmarks.fleet`: comparison of the configurations on a large simulated fleet.

Leaves the simulation to `simulation`, and the explanation of its assumptions to docs/fleet.md.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from benchmarks.fleet.assumptions import AssumptionInfo, Assumptions, described
from benchmarks.fleet.configurations import BY_NAME
from benchmarks.fleet.results import FigureSpread, RunFigures, assumed, fault_counts, spread
from benchmarks.fleet.running import run_all
from quire.cli.command_line import add_shared_options, chosen, positive
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import ExitCode, UsageError
from quire.operate.fields import Json, Row

SEEDS_DEFAULT: Final = 2
COLUMNS: Final = (
    ("outage_s_per_ledger", "down s/ledger"),
    ("longest_outage_s", "longest s"),
    ("slow_share", "slow"),
    ("read_availability", "readable"),
    ("one_copy_gib_hours", "1 copy GiB h"),
    ("two_copies_gib_hours", "2 copies GiB h"),
    ("at_ack_quorum_gib_hours", "at AQ GiB h"),
    ("lost_gib", "lost GiB"),
    ("repaired_gib", "repaired GiB"),
    ("caught_up_gib", "caught up GiB"),
    ("peak_copy_mib_per_s", "peak MiB/s"),
    ("change_count", "changes"),
    ("undecided_count", "undecided"),
    ("longest_undecided_s", "for s"),
)
"""Figures of the table and their headings; JSON has all figures."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    summary = (
        "Simulate a fleet of bookies for a month of failures, once per configuration and seed: "
        "availability, data at risk, repair traffic. docs/fleet.md describes the model."
    )
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=summary)
    add_shared_options(parser, needs_cluster=False)
    parser.add_argument("--configurations", metavar="A,B", help="default: all")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the first seed (default 1)"
    )
    parser.add_argument(
        "--seeds",
        type=positive,
        default=SEEDS_DEFAULT,
        metavar="N",
        help=f"number of seeds, for the spread (default {SEEDS_DEFAULT})",
    )
    group = parser.add_argument_group("assumptions")
    for row in described():
        group.add_argument(
            "--" + row.name.replace("_", "-"),
            type=_number(row),
            default=row.default,
            metavar="N",
            help=f"{row.meaning}; {row.unit} (default {row.default:g})".replace("%", "%%"),
        )
    return parser


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Simulate, show the progress, and print the results."""
    assumptions = Assumptions(**{row.name: getattr(arguments, row.name) for row in described()})
    names = chosen(arguments.configurations, list(BY_NAME), "configuration")
    widest = max(BY_NAME[name].quorum.ensemble_size for name in names)
    if assumptions.bookies < widest:
        raise UsageError(
            f"{widest} bookies are needed, but --bookies is {assumptions.bookies}",
            try_next=f"--bookies {widest}, or fewer --configurations",
        )
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    with Progress(output, "simulated", "runs", len(names) * len(seeds)) as progress:
        runs = await run_all(names, assumptions, seeds, lambda _run: progress.advance(1))
    by_name = {name: [row for row in runs if row.configuration == name] for name in names}
    if output.as_json:
        output.record(_document(assumptions, seeds, by_name))
    else:
        _print(assumptions, seeds, by_name, output)
    return ExitCode.DONE


def _document(
    assumptions: Assumptions, seeds: Sequence[int], runs: dict[str, list[RunFigures]]
) -> Row:
    configurations: list[Json] = []
    for name, results in runs.items():
        spreads: dict[str, Json] = {}
        for figure in results[0].values():
            over = spread(results, figure)
            spreads[figure] = asdict(over) if over is not None else None
        row: dict[str, Json] = {"name": name, "says": BY_NAME[name].says, "figures": spreads}
        row["runs"] = [{"seed": figures.seed, **figures.values()} for figures in results]
        configurations.append(row)
    histories: list[Json] = [
        {"seed": seed, "faults": fault_counts(assumptions, seed)} for seed in seeds
    ]
    return {
        "assumptions": assumed(assumptions),
        "histories": histories,
        "configurations": configurations,
    }


def _print(
    assumptions: Assumptions,
    seeds: Sequence[int],
    runs: dict[str, list[RunFigures]],
    output: Output,
) -> None:
    with output.listing("assumption", "value", "unit", "meaning") as listing:
        for row in assumed(assumptions):
            listing.add({"assumption": row["name"], **row, "value": f"{row['value']:g}"})
    output.line("")
    for seed in seeds:
        counts = fault_counts(assumptions, seed).items()
        output.line(f"seed {seed}: " + ", ".join(f"{count} × {kind}" for kind, count in counts))
    output.line("")
    with output.listing("configuration", *(title for _, title in COLUMNS)) as listing:
        for name, results in runs.items():
            shown: dict[str, Json] = {"configuration": name}
            for figure, title in COLUMNS:
                shown[title] = _range(figure, spread(results, figure))
            listing.add(shown)
    output.line("")
    output.line("The median of the seeds, and their range. docs/fleet.md explains each column.")


def _range(name: str, over: FigureSpread | None) -> str:
    """Return the median as text, with the range in brackets if there is one."""
    if over is None:
        return "-"
    least, middle, most = (_show(name, value) for value in (over.least, over.middle, over.most))
    return middle if least == most else f"{middle} ({least}–{most})"


def _show(name: str, value: float) -> str:
    """Return a figure as text with a useful number of digits."""
    if name == "read_availability":  # count the nines
        return "all" if value == 1 else f"1−{1 - value:.1e}"
    if name == "slow_share":
        return f"{value:.2%}"
    return f"{value:,.0f}" if value == 0 or value >= 100 else f"{value:.3g}"


def _number(info: AssumptionInfo) -> Callable[[str], float]:
    """Return the parser of one assumption, for argparse."""

    def read(text: str) -> float:
        value = type(info.default)(text)
        if not info.least <= value < float("inf"):
            raise argparse.ArgumentTypeError(
                f"{value:g} {info.unit} is out of range: use at least {info.least:g}"
            )
        return value

    read.__name__ = "number"  # argparse prints this name if the text is not a number
    return read

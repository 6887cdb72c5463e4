"""`quire bench compare|report`: measurements of ways to replicate while faults strike."""

import argparse
import asyncio
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quire.cli.command_line import Noun, chosen, positive
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.distribution import build
from quire.errors import ExitCode, UsageError
from quire.operate.fields import Json

if TYPE_CHECKING:
    from quire.bench.comparison import Comparison
    from quire.bench.figures import Figure, Spread
    from quire.bench.results import FailedRun, RunResult
    from quire.bench.runner import Plan

RATE: Final = 1_000.0
ENTRY_BYTES: Final = 1_024
ENTRY_BYTES_MIN: Final = 8
SEE_LIST: Final = "quire bench compare --list"
PAGE_NAME: Final = "report.html"
REPEAT_DEFAULT: Final = 3
REPEATED_S_MAX: Final = 3_600.0
"""Time that all runs may take before fewer repetitions are the default."""
SHOWN: Final = ("p50_ms", "p99_ms", "p999_ms", "max_ms", "silence_s", "changes", "losable")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire bench`."""
    noun = Noun("bench", "Measure ways to replicate on this machine, with real processes.")
    compare = noun.verb(
        "compare",
        _compare,
        "Run configurations through scenarios of faults, each on a separate cluster: an open "
        "loop of appends, one JSON file per run and one HTML page.",
        needs_cluster=False,
    )
    _add_options(compare)
    report = noun.verb(
        "report", _report, "Draw the page again from the JSON files.", needs_cluster=False
    )
    _add_directory(report, "directory of the JSON files (default: quire-compare)")
    return noun.parser


def _add_options(compare: argparse.ArgumentParser) -> None:
    compare.add_argument("--configurations", metavar="A,B", help="default: all")
    compare.add_argument("--scenarios", metavar="X,Y", help="default: all")
    compare.add_argument(
        "--seconds",
        type=_seconds,
        default=10.0,
        metavar="N",
        help="length of a usual run; all times of a scenario scale with it (default 10)",
    )
    compare.add_argument(
        "--repeat",
        type=positive,
        metavar="N",
        help=f"runs of each cell (default: {REPEAT_DEFAULT}, or fewer if all runs would take more "
        f"than {REPEATED_S_MAX / 60:g} minutes)",
    )
    compare.add_argument(
        "--rate", type=_rate, default=RATE, metavar="N", help=f"appends/s (default {RATE:g})"
    )
    compare.add_argument(
        "--entry-bytes", type=_entry_bytes, default=ENTRY_BYTES, metavar="N", help="default 1024"
    )
    compare.add_argument(
        "--sweep",
        type=_rates,
        metavar="N,M",
        help="run these rates in the scenario `steady` only: throughput against latency",
    )
    _add_directory(
        compare,
        "directory for the JSON files and the page; earlier runs stay, and the page shows all "
        "(default: quire-compare)",
    )
    compare.add_argument(
        "--list", action="store_true", help="list configurations and scenarios, and run nothing"
    )


async def _compare(arguments: argparse.Namespace, output: Output) -> int:
    from quire.bench.comparison import ResultsError, locked

    if arguments.list:
        return _list(output)
    directory = Path(arguments.out)
    try:
        with locked(directory):
            return await _compare_into(directory, arguments, output)
    except ResultsError as error:
        raise UsageError(str(error)) from error


async def _compare_into(directory: Path, arguments: argparse.Namespace, output: Output) -> int:
    from quire.bench.comparison import describe_machine, read_comparison, write_machine, write_run
    from quire.bench.results import FailedRun
    from quire.bench.runner import run_all

    plan = _plan(arguments, directory)
    output.remark(_time_text(plan))
    progress = Progress(output, "ran", "runs", len(list(plan.cells())))
    command = shlex.join(["quire", *sys.argv[1:]])
    write_machine(directory, describe_machine(build(), command))

    def take(run: "RunResult | FailedRun") -> None:
        write_run(directory, run)
        progress.advance(1)
        _report_failure(run, output)

    task = asyncio.current_task()
    assert task is not None, "a command runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        runs = await run_all(plan, take)
    except asyncio.CancelledError:  # Ctrl-C, or SIGTERM: every process of the run has ended
        progress.end()
        output.remark(f"the runs so far are kept: quire bench report --out {directory}")
        raise KeyboardInterrupt from None
    finally:
        progress.end()
    comparison = await asyncio.to_thread(read_comparison, directory)
    await _draw(comparison, directory, output)
    _print(comparison, output)
    has_figures = any(not isinstance(run, FailedRun) for run in runs)
    return ExitCode.DONE if has_figures else ExitCode.FINDINGS


async def _report(arguments: argparse.Namespace, output: Output) -> int:
    from quire.bench.comparison import ResultsError, read_comparison

    try:
        comparison = await asyncio.to_thread(read_comparison, Path(arguments.out))
    except ResultsError as error:
        raise UsageError(str(error)) from error
    if not comparison.runs:
        raise UsageError(
            f"{arguments.out} has no results", try_next=f"quire bench compare --out {arguments.out}"
        )
    await _draw(comparison, Path(arguments.out), output)
    _print(comparison, output)
    return ExitCode.DONE


def _plan(arguments: argparse.Namespace, directory: Path) -> "Plan":
    from quire.bench import configurations, scenarios
    from quire.bench.comparison import next_repetition
    from quire.bench.runner import Plan

    rates: tuple[float, ...] = arguments.sweep or (arguments.rate,)
    names = chosen(arguments.scenarios, list(scenarios.BY_NAME), "scenario", SEE_LIST)
    scale = arguments.seconds / scenarios.BASE_SECONDS
    plan = Plan(
        configurations=chosen(
            arguments.configurations, list(configurations.BY_NAME), "configuration", SEE_LIST
        ),
        scenarios=("steady",) if arguments.sweep else names,
        rates=rates,
        entry_bytes=arguments.entry_bytes,
        repeat=arguments.repeat or 1,
        scale=scale,
        first_repetition=next_repetition(directory, entry_bytes=arguments.entry_bytes, scale=scale),
    )
    if arguments.repeat:
        return plan
    count = min(REPEAT_DEFAULT, int(REPEATED_S_MAX / plan.expected_s()))
    return replace(plan, repeat=max(1, count))


def _time_text(plan: "Plan") -> str:
    count, minutes = len(list(plan.cells())), plan.expected_s() / 60
    runs = "1 run" if count == 1 else f"{count} runs"
    return f"{runs}, {plan.repeat} of each cell: about {max(1, round(minutes))} min"


def _list(output: Output) -> int:
    from quire.bench import configurations, scenarios

    with output.listing("kind", "name", "says") as listing:
        for configuration in configurations.CONFIGURATIONS:
            says = configuration.says
            listing.add({"kind": "configuration", "name": configuration.name, "says": says})
        for scenario in scenarios.SCENARIOS:
            listing.add({"kind": "scenario", "name": scenario.name, "says": scenario.says})
    return ExitCode.DONE


def _report_failure(run: "RunResult | FailedRun", output: Output) -> None:
    reason = getattr(run, "reason", None)
    if reason is not None:
        output.remark(f"{run.cell.scenario}, {run.cell.configuration}: no figures: {reason}")


async def _draw(comparison: "Comparison", directory: Path, output: Output) -> None:
    from quire.bench.report_page import render

    path = directory / PAGE_NAME
    try:
        await asyncio.to_thread(path.write_text, render(comparison))
    except OSError as error:
        raise UsageError(
            f"the page cannot be written: {error}", try_next=f"quire bench report --out {directory}"
        ) from error
    output.remark(f"{path}: open it in a browser")


def _print(comparison: "Comparison", output: Output) -> None:
    from quire.bench import figures
    from quire.bench.choosing import advise, as_json, doubts, recommend

    columns = [figure for figure in figures.FIGURES if output.as_json or figure.name in SHOWN]
    rows = [
        _row(comparison, scenario, configuration, rate, columns, output)
        for scenario in comparison.scenarios
        for configuration in comparison.configurations
        for rate in comparison.rates
        if comparison.of(scenario, configuration, rate)
    ]
    recommendations = recommend(comparison)
    if output.as_json:
        values = [as_json(comparison, recommendation) for recommendation in recommendations]
        said = list[Json](doubts(comparison))
        output.record({"recommendations": values, "doubts": said, "figures": rows})
        return
    for text in doubts(comparison):
        output.line(f"warning: {text}")
    for recommendation in recommendations:
        advice = advise(comparison, recommendation)
        output.line(f"{advice.title}: {advice.answer}")
        for text in (advice.reason, advice.cost, advice.left_out):
            if text:
                output.line(f"  {text}")
    output.line("")
    names = [figure.name for figure in columns]
    output.table(rows, "scenario", "configuration", "rate", "runs", *names)


def _row(
    comparison: "Comparison",
    scenario: str,
    configuration: str,
    rate: float,
    columns: Sequence["Figure"],
    output: Output,
) -> dict[str, Json]:
    from quire.bench import figures

    runs = comparison.of(scenario, configuration, rate)
    row: dict[str, Json] = {
        "scenario": scenario,
        "configuration": configuration,
        "rate": rate,
        "runs": len(runs),
    }
    for figure in columns:
        row[figure.name] = _cell(figures.summarise(runs, figure), figure, output)
    return row


def _cell(spread: "Spread | None", figure: "Figure", output: Output) -> Json:
    from quire.bench import figures

    if not output.as_json:
        return figures.show(spread, figure.digits)
    if spread is None:
        return None
    return {"median": spread.median, "low": spread.low, "high": spread.high}


def _add_directory(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--out", default="quire-compare", metavar="DIR", help=text)


def _rates(text: str) -> tuple[float, ...]:
    return tuple(dict.fromkeys(_rate(part) for part in text.split(",")))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number: use digits, such as 10 or 0.5"
        ) from None


def _seconds(text: str) -> float:
    value = _number(text)
    if not 1.0 <= value <= 3_600.0:  # noqa: PLR2004 - an hour
        raise argparse.ArgumentTypeError(f"{value:g} s is out of range: use 1 to 3600")
    return value


def _entry_bytes(text: str) -> int:
    from bookie.wire.batch import ENTRY_BYTES_MAX

    value = _number(text)
    if not (value.is_integer() and ENTRY_BYTES_MIN <= value <= ENTRY_BYTES_MAX):
        limits = f"{ENTRY_BYTES_MIN} (for the entry's number) to {ENTRY_BYTES_MAX:,} bytes"
        raise argparse.ArgumentTypeError(f"{text} is out of range: use a whole number, {limits}")
    return int(value)


def _rate(text: str) -> float:
    value = _number(text)
    if not 1.0 <= value <= 1e6:  # noqa: PLR2004 - no machine does more
        raise argparse.ArgumentTypeError(
            f"{value:g} per second is out of range: use 1 to 1,000,000"
        )
    return value

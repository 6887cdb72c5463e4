"""`quire demo`: a guided run of the main job on real processes, with checks at the end."""

import argparse
import asyncio
from typing import TYPE_CHECKING

from quire.cli.command_line import lone_command
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.fields import Json, describe_bytes

if TYPE_CHECKING:
    from quire.demo import DemoReport


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire demo`."""
    summary = (
        "Starts ZooKeeper and four bookies, appends a file line by line while one bookie is killed "
        "and another paused, reads everything back and compares, then a second client takes over "
        "from a live writer. Exit status 1 if a check fails."
    )
    command = lone_command("demo", _run, summary)
    command.add_argument(
        "--file", metavar="FILE", help="file to append (default: Python's standard library)"
    )
    return command


async def _run(arguments: argparse.Namespace, output: Output) -> int:
    from quire.demo import BOOKIES, Demo, open_source, view_for
    from quire.local_cluster import LocalCluster

    source = open_source(arguments.file)
    view = view_for(output.remarks)
    loop = asyncio.get_running_loop()
    started = loop.time()
    view.say(f"Starting ZooKeeper and {BOOKIES} bookies, each as a separate process.")
    async with LocalCluster(bookies=BOOKIES) as cluster:
        view.say(f"    ready in {loop.time() - started:.1f} s at {cluster.metadata_uri}")
        report = await Demo(cluster, source, view).run()
    elapsed_s = loop.time() - started
    if output.as_json:
        output.record(_as_json(report, elapsed_s))
    else:
        _print_summary(report, elapsed_s, output)
    return ExitCode.DONE if report.is_well else ExitCode.FINDINGS


def _print_summary(report: "DemoReport", elapsed_s: float, output: Output) -> None:
    output.line("")
    for check in report.checks:
        output.line(f"  {'ok  ' if check.holds else 'FAIL'}  {check.claim}: {check.seen}")
    rate = report.line_count / max(report.append_s, 1e-9)
    read_rate = describe_bytes(round(report.byte_count / max(report.read_s, 1e-9)))
    output.line("")
    output.line(
        f"{report.line_count:,} entries, {describe_bytes(report.byte_count)}: appended at "
        f"{rate:,.0f} entries/s, read back at {read_rate}/s; {report.failure_count} bookies "
        f"failed, {len(report.fragments)} fragments; {elapsed_s:.0f} s in all."
    )
    failed = sum(not check.holds for check in report.checks)
    output.line("All checks passed." if report.is_well else f"{failed} checks FAILED.")


def _as_json(report: "DemoReport", elapsed_s: float) -> dict[str, Json]:
    return {
        "is_well": report.is_well,
        "entry_count": report.line_count,
        "byte_count": report.byte_count,
        "bookies_hurt": report.failure_count,
        "append_s": report.append_s,
        "read_s": report.read_s,
        "elapsed_s": elapsed_s,
        "fragments": [
            {
                "first_entry_id": f.first_entry_id,
                "last_entry_id": f.last_entry_id,
                "ensemble": f.ensemble,
            }
            for f in report.fragments
        ],
        "checks": [{"claim": c.claim, "holds": c.holds, "seen": c.seen} for c in report.checks],
    }

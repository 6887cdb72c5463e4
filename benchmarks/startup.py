"""Benchmark of the start of the command: time to print its help, and to the first connection.

Leaves everything else about the command to its tests. Targets: `quire --help` under 200 ms; every
command of a cluster connects within 350 ms, of time and of processor time. A command ends when it
connects, to a port where nothing listens.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from benchmarks.measures import interleaved
from benchmarks.runner import Bench, run

HELP_MS_WANTED: Final = 200.0
CONNECTED_MS_WANTED: Final = 350.0
CONNECTS: Final = """
import os, sys
sys.addaudithook(lambda event, _: os._exit(0) if event == "socket.connect" else None)
from quire.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
HELP: Final[dict[str, Sequence[str]]] = {
    "quire --help": ("-m", "quire.cli.main", "--help"),
    "quire ledger --help": ("-m", "quire.cli.main", "ledger", "--help"),
    "python, nothing else": ("-c", ""),
}
CLUSTER: Final = (
    "ledger list",
    "ledger tail 1",
    "ledger append 1",
    "chain list",
    "bookie list",
    "cluster health",
    "repair status",
    "metadata check",
    "user list",
    "topic list",
    "top --once",
)
"""Commands that talk to a cluster."""


def _commands() -> dict[str, Sequence[str]]:
    address = ("--metadata", "zk://127.0.0.1:1/nowhere")
    connecting = {f"quire {verb}": ("-c", CONNECTS, *verb.split(), *address) for verb in CLUSTER}
    return {**HELP, **connecting}


def _timed(arguments: Sequence[str]) -> dict[str, float]:
    """Run Python once; return its time and its processor time, in milliseconds."""
    before, start = os.times(), perf_counter()
    subprocess.run(
        [sys.executable, *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True
    )
    elapsed, after = perf_counter() - start, os.times()
    used = after.children_user - before.children_user
    used += after.children_system - before.children_system
    return {"ms": elapsed * 1e3, "cpu_ms": used * 1e3}


async def _measure(bench: Bench) -> None:
    commands = _commands()
    for _, case in interleaved(list(commands), bench.repetitions):
        bench.report.sample(case, await asyncio.to_thread(_timed, commands[case]))
    for case in commands:
        most = HELP_MS_WANTED if case == "quire --help" else None
        most = CONNECTED_MS_WANTED if case not in HELP else most
        bench.report.figure(case, "ms", "ms", at_most=most)
        bench.report.figure(case, "cpu_ms", "ms", at_most=most)


if __name__ == "__main__":
    run("startup", _measure, repeat=15)

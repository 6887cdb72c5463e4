"""Benchmark of the start of the command: time to print its help.

Leaves everything else about the command to its tests. Target: `quire --help` under 200 ms.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from benchmarks.measures import interleaved
from benchmarks.runner import Bench, run

HELP_MS_WANTED: Final = 200.0
COMMANDS: Final[dict[str, Sequence[str]]] = {
    "quire --help": (sys.executable, "-m", "quire.cli.main", "--help"),
    "quire ledger --help": (sys.executable, "-m", "quire.cli.main", "ledger", "--help"),
    "python, nothing else": (sys.executable, "-c", ""),
}


async def _measure(bench: Bench) -> None:
    for _, case in interleaved(list(COMMANDS), bench.repetitions):
        start = perf_counter()
        done = await asyncio.to_thread(
            subprocess.run, COMMANDS[case], check=True, stdout=subprocess.DEVNULL
        )
        assert done.returncode == 0
        bench.report.sample(case, {"ms": (perf_counter() - start) * 1e3})
    for case in COMMANDS:
        most = HELP_MS_WANTED if case == "quire --help" else None
        bench.report.figure(case, "ms", "ms", at_most=most)


if __name__ == "__main__":
    run("startup", _measure, repeat=15)

"""Benchmark of Quire, Apache BookKeeper and Apache Kafka, interleaved in one run.

Leaves the order to `interleaving`, loads to each side, and targets to `table`. One JSON document
goes to standard output and to a file, text and the table to standard error.

Format: as `benchmarks.run`, with `peers` in addition: for each peer whether it was available, and
why not.

Invariants: an unavailable peer is reported and is not a failure; at the end, also by Ctrl-C or
SIGTERM, every started process has ended and all data is removed.
"""

import argparse
import asyncio
import io
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.peers import bookkeeper, kafka, quire_side
from benchmarks.peers.figures import report_figures
from benchmarks.peers.interleaving import Part, System, Turn, turns
from benchmarks.peers.maven import JavaPeer, PeerUnavailableError, default_cache, prepare
from benchmarks.peers.table import BESIDE_PEERS, markdown
from benchmarks.peers.workloads import FULL, SMOKE, Samples, Trial
from benchmarks.report import Report
from benchmarks.run import document
from benchmarks.runner import Bench, run_loop

PEERS: Final = (System.BOOKKEEPER, System.KAFKA)
SIGTERM_STATUS: Final = 143
SMOKE_WARNING: Final = "Only a smoke run: the results show that it works, and measure nothing."


class Comparison:
    """One run of all available systems."""

    def __init__(self, bench: Bench, cache: Path, logs: Path) -> None:
        self.samples = Samples()
        self.unavailable: dict[System, str] = {}
        self.failed: dict[str, str] = {}
        self._bench = bench
        self._cache = cache
        self._logs = logs
        self._peers: dict[System, JavaPeer] = {}

    async def run(self, wanted: list[System]) -> None:
        """Fetch the wanted systems, and run their turns."""
        note = self._bench.report.note
        for system in (peer for peer in PEERS if peer in wanted):
            try:
                self._peers[system] = await prepare(system, self._cache)
            except PeerUnavailableError as error:
                self.unavailable[system] = str(error)
                note(f"peer not available: {system}: {error}")
        available = [system for system in wanted if system not in self.unavailable]
        for repetition, turn in turns(available, self._bench.repetitions):
            note(f"repetition {repetition + 1}: {turn.system}, {turn.part}")
            sizes = SMOKE if self._bench.is_smoke else FULL
            trial = Trial(self._bench, repetition, sizes, self.samples)
            logs = self._logs / f"{repetition}-{turn.system}-{turn.part.name.lower()}"
            logs.mkdir(parents=True)
            try:
                await self._take(turn, trial, logs)
            except Exception as error:  # noqa: BLE001  # the other turns still run
                self.failed[logs.name] = f"{type(error).__name__}: {error}"
                note(f"failed: {logs.name}: {error}; its logs are kept in {logs}")
                continue
            except BaseException:  # interrupted: not a failure to investigate
                shutil.rmtree(logs, ignore_errors=True)
                raise
            shutil.rmtree(logs, ignore_errors=True)

    async def _take(self, turn: Turn, trial: Trial, logs: Path) -> None:
        match turn.system, turn.part:
            case System.QUIRE, Part.LOAD:
                await quire_side.measure_load(trial)
            case System.QUIRE, _:
                await quire_side.measure_pause(trial)
            case System.BOOKKEEPER, Part.LOAD:
                await bookkeeper.measure_load(trial, self._peers[turn.system], logs)
            case System.BOOKKEEPER, _:
                await bookkeeper.measure_pause(trial, self._peers[turn.system], logs)
            case _:
                await kafka.measure_load(trial, self._peers[turn.system], logs)


async def _until_terminated(comparison: Comparison, wanted: list[System]) -> None:
    task = asyncio.ensure_future(comparison.run(wanted))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task


def _peers(comparison: Comparison, wanted: list[System]) -> list[Mapping[str, object]]:
    unavailable = comparison.unavailable
    return [
        {"peer": peer, "available": peer not in unavailable, "why_not": unavailable.get(peer)}
        for peer in PEERS
        if peer in wanted
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, once each")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each case")
    parser.add_argument("--data-dir", type=Path, help="directory for data during the run")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="directory that keeps jars"
    )
    parser.add_argument("--output", type=Path, default=Path("bench-results"), help="a directory")
    parser.add_argument(
        "--loop", choices=("uvloop", "asyncio"), help="default: uvloop if installed"
    )
    systems = [system.value for system in System]
    parser.add_argument("--only", nargs="+", choices=systems, default=systems, help="systems")
    return parser.parse_args()


def main() -> int:
    """Run; return 1 if an available system failed (a missed target is not a failure)."""
    options = _options()
    wanted = [System(name) for name in options.only]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    name = f"peers-{'smoke-' if options.smoke else ''}{started.replace(':', '')}"
    options.output.mkdir(parents=True, exist_ok=True)
    logs = (options.output / f"{name}-logs").absolute()
    parent = machine.choose_directory(options.data_dir)
    directory = Path(tempfile.mkdtemp(prefix="quire-bench-peers-", dir=parent))
    lines = io.StringIO()
    report = Report("peers", lines)
    comparison = Comparison(Bench(options, directory, report), options.cache, logs)
    try:
        report.machine({**machine.describe(directory), "smoke": options.smoke})
        run_loop(_until_terminated(comparison, wanted), options.loop)
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return SIGTERM_STATUS
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if logs.exists() and not any(logs.iterdir()):
            logs.rmdir()
    report_figures(report, comparison.samples, BESIDE_PEERS)
    results = document(lines.getvalue().splitlines(), {}, started)
    results |= {"failed": comparison.failed, "peers": _peers(comparison, wanted)}
    text = json.dumps(results, indent=1)
    (options.output / f"{name}.json").write_text(text + "\n")
    print(text)
    print(SMOKE_WARNING if options.smoke else "", file=sys.stderr)
    print(markdown(comparison.samples), file=sys.stderr)
    for peer, why in comparison.unavailable.items():
        print(f"peer not available: {peer}: {why}", file=sys.stderr)
    return 1 if comparison.failed else 0


if __name__ == "__main__":
    sys.exit(main())

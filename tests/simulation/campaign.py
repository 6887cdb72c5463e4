"""Runs of many seeds, in one process or several, and the sum of their results.

Leaves one seed to `tests.simulation.run` or `tests.simulation.topics.topic_run`, and the command
line to `tests.simulation.command`.

Format of the summary, one JSON object: seeds, violations (runs that showed any), failing (their
seeds), messages (frames between clients and bookies), metadata_messages (requests to the metadata
service, answers, news), messages_per_s (both, per processor second), simulated_hours, wall_seconds,
entries (acknowledged), ledgers, faults by kind, errors by kind (typed ones, which callers met),
rejected (writers, and for how many of them the checker `availability` would have rejected an error
at some time), rejecting_seeds (runs with such a writer, by error).
"""

import math
import multiprocessing
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.simulation.run import Result

SEEDS_PER_PROCESS: Final = 50
RunSeed = Callable[[int], Result]


@dataclass(slots=True)
class Summary:
    """Sum of the results of a campaign."""

    seeds: int = 0
    failing: list[int] = field(default_factory=list)
    messages: int = 0
    metadata_messages: int = 0
    simulated_s: float = 0.0
    processor_s: float = 0.0
    entries: int = 0
    ledgers: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    rejecting_seeds: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result, processor_s: float) -> None:
        """Add the result of one seed."""
        self.seeds += 1
        if result.violations:
            self.failing.append(result.seed)
        self.messages += result.messages
        self.metadata_messages += result.metadata_messages
        self.simulated_s += result.simulated_s
        self.processor_s += processor_s
        self.entries += result.entries
        self.ledgers += result.ledgers
        self.faults.update(result.faults)
        self.errors.update(result.errors)
        self.rejected.update(result.rejected)
        self.rejecting_seeds.update(name for name, count in result.rejected.items() if count)

    def as_json(self, wall_s: float) -> dict[str, object]:
        """Return the summary as the JSON object that is printed."""
        return {
            "seeds": self.seeds,
            "violations": len(self.failing),
            "failing": sorted(self.failing),
            "messages": self.messages,
            "metadata_messages": self.metadata_messages,
            "messages_per_s": round(
                (self.messages + self.metadata_messages) / max(0.001, self.processor_s)
            ),
            "simulated_hours": round(self.simulated_s / 3600, 2),
            "wall_seconds": round(wall_s, 1),
            "processor_seconds": round(self.processor_s, 1),
            "entries": self.entries,
            "ledgers": self.ledgers,
            "faults": dict(sorted(self.faults.items())),
            "errors": dict(sorted(self.errors.items())),
            "rejected": dict(sorted(self.rejected.items())),
            "rejecting_seeds": dict(sorted(self.rejecting_seeds.items())),
        }


def replay_command(command: str, seed: int, *, beyond_budget: bool) -> str:
    """Return the command that replays one seed, and the commit that it belongs to."""
    options = f"--seed {seed}{' --beyond-budget' if beyond_budget else ''} --trace"
    return f"{command} {options}  # {_commit()}"


def run_campaign(
    seeds: Iterable[int],
    run: RunSeed,
    *,
    workers: int,
    stop_at_first: bool,
    on_result: Callable[[Result], None],
    for_s: float = math.inf,
) -> Summary:
    """Run all seeds, or stop at the first one that fails, or when so many seconds have passed."""
    summary = Summary()
    end_s = time.monotonic() + for_s
    for result, processor_s in _results(seeds, workers, run):
        summary.add(result, processor_s)
        on_result(result)
        if (result.violations and stop_at_first) or time.monotonic() > end_s:
            break
    return summary


def _commit() -> str:
    """Return the checked-out commit; "no commit" for a copy without its history."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        check=False,
        text=True,
    )
    return described.stdout.strip() or "no commit"


def _results(seeds: Iterable[int], workers: int, run: RunSeed) -> Iterator[tuple[Result, float]]:
    job = partial(_timed, run)
    if workers == 1:
        yield from map(job, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(job, seeds)


def _timed(run: RunSeed, seed: int) -> tuple[Result, float]:
    began_s = time.process_time()
    result = run(seed)
    return result, time.process_time() - began_s

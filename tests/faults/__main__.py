"""`python -m tests.faults [NAME ...] [--budget small|full] [--seed S]`: campaigns of real faults.

Prints one JSON object for each campaign, and last, to stderr, a line with the result and the amount
of work of each. The exit status is 1 if any guarantee was broken, else 2 if not all work was done:
a campaign was skipped, or ended early although no --seconds were given.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Final

from tests.faults import (
    cluster_kills,
    old_copies,
    pause_fence_resume,
    power_cut,
    single_log,
    torn_states,
    zookeeper_proxy,
)
from tests.faults.budget import EXIT_BROKEN, FULL, SMALL, Budget, Summary

CAMPAIGNS: Final[dict[str, Callable[[Budget], Summary]]] = {
    "single_log": single_log.run,
    "torn_states": torn_states.run,
    "power_cut": power_cut.run,
    "pause_fence_resume": pause_fence_resume.run,
    "cluster_kills": cluster_kills.run,
    "old_copies": old_copies.run,
    "zookeeper_proxy": zookeeper_proxy.run,
}


def worst(summaries: Sequence[Summary]) -> int:
    """Return the exit status of several campaigns; broken guarantees come first."""
    statuses = [summary.status for summary in summaries]
    return EXIT_BROKEN if EXIT_BROKEN in statuses else max(statuses)


def main() -> int:
    """Run the named campaigns, or all if none is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CAMPAIGNS))
    parser.add_argument("--budget", choices=(SMALL, FULL), default=SMALL)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, help="start no cycle of a campaign after this time"
    )
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in CAMPAIGNS]
    if unknown:
        parser.error(f"no such campaign: {', '.join(unknown)}")
    budget = Budget(given.budget, given.seed, given.seconds)
    summaries = []
    for name in given.names or CAMPAIGNS:
        summary = CAMPAIGNS[name](budget)
        summaries.append(summary)
        sys.stdout.write(json.dumps(summary.as_json()) + "\n")
        sys.stdout.flush()
    sys.stderr.write("; ".join(f"{each.name}: {each.result}" for each in summaries) + "\n")
    return worst(summaries)


if __name__ == "__main__":
    sys.exit(main())

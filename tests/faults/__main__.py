"""`python -m tests.faults [NAME ...] [--budget small|full] [--seed S]`: campaigns of real faults.

Prints one JSON object for each campaign; its status is 1 if any promise was broken.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Final

from tests.faults import (
    cluster_kills,
    pause_fence_resume,
    power_cut,
    single_log,
    torn_states,
    zookeeper_proxy,
)
from tests.faults.budget import FULL, SMALL, Budget, Summary

CAMPAIGNS: Final[dict[str, Callable[[Budget], Summary]]] = {
    "single_log": single_log.run,
    "torn_states": torn_states.run,
    "power_cut": power_cut.run,
    "pause_fence_resume": pause_fence_resume.run,
    "cluster_kills": cluster_kills.run,
    "zookeeper_proxy": zookeeper_proxy.run,
}


def main() -> int:
    """Run the campaigns that are named, all without a name."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CAMPAIGNS))
    parser.add_argument("--budget", choices=(SMALL, FULL), default=SMALL)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="begin no cycle of a campaign after so long")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in CAMPAIGNS]
    if unknown:
        parser.error(f"no such campaign: {', '.join(unknown)}")
    budget = Budget(given.budget, given.seed, given.seconds)
    is_well = True
    for name in given.names or CAMPAIGNS:
        summary = CAMPAIGNS[name](budget)
        is_well = is_well and summary.is_well
        sys.stdout.write(json.dumps(summary.as_json()) + "\n")
        sys.stdout.flush()
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())

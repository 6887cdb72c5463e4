"""`python -m tests.campaign --minutes 10 --seed 1 --ensemble 3 --ack 2`: random faults, then the
check of all results.

Prints one JSON object. The exit status is 1 if any guarantee was broken.
"""

import argparse
import asyncio
import json
import random
import sys
from pathlib import Path

from tests.campaign.runner import Campaign, run_campaign

SPARES = 5
"""More than the bookies that can be down, restarting and in quarantine at the same time."""


def main() -> int:
    """Run one campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.Random().randrange(2**32))
    parser.add_argument("--ensemble", type=int, choices=(3, 5), default=3)
    parser.add_argument("--write", type=int, default=3)
    parser.add_argument("--ack", type=int, choices=(2, 3), default=2)
    parser.add_argument(
        "--in-sync", type=int, metavar="MIN", help="in-sync mode, with at least this many members"
    )
    parser.add_argument("--bookies", type=int, help="default: five more than an ensemble")
    parser.add_argument("--down-max", type=int, default=2, help="bookies with a fault at a time")
    parser.add_argument("--parallel", type=int, default=2, help="ledgers written at a time")
    parser.add_argument("--megabytes-per-s", type=float, default=6.0, help="bounds the disk used")
    parser.add_argument("--keep", type=Path, help="keep history and data in this directory")
    given = parser.parse_args()
    campaign = Campaign(
        seconds=given.minutes * 60,
        seed=given.seed,
        ensemble=given.ensemble,
        write=given.write,
        ack=given.ack,
        in_sync=given.in_sync,
        bookies=given.bookies or given.ensemble + SPARES,
        down_max=given.down_max,
        parallel=given.parallel,
        megabytes_per_s=given.megabytes_per_s,
        keep=given.keep,
    )
    summary = asyncio.run(run_campaign(campaign))
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 0 if summary["is_well"] else 1


if __name__ == "__main__":
    sys.exit(main())

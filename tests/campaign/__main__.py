"""`python -m tests.campaign --minutes 10 --seed 1 --ensemble 3 --ack 2`: random faults, then the
check of all results.

Prints one JSON object. The exit status is 1 if any guarantee was broken.
"""

import argparse
import asyncio
import json
import random
import sys
from functools import partial
from pathlib import Path

from tests.campaign.repair.world import RepairWorld
from tests.campaign.runner import Campaign, run_campaign

DEFAULTS = {False: (2, 5, 2, 6.0), True: (3, 3, 1, 1.5)}
"""Without and with --repair: the ack quorum; bookies besides an ensemble, which are more than those
that can be down, restarting and in quarantine at the same time; bookies with a fault at a time;
megabytes per second. Repair copies all data several times, and has a process for each bookie. An
entry that was acknowledged by all of its bookies must be on all of them at the end.
"""


def main() -> int:
    """Run one campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.Random().randrange(2**32))
    parser.add_argument("--ensemble", type=int, choices=(3, 5), default=3)
    parser.add_argument("--write", type=int, default=3)
    parser.add_argument("--ack", type=int, choices=(2, 3), help="default: 2; with --repair 3")
    parser.add_argument(
        "--in-sync", type=int, metavar="MIN", help="in-sync mode, with at least this many members"
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="bookies are also wiped, lost for good and drained, and everything is repaired",
    )
    parser.add_argument(
        "--topics", action="store_true", help="with --repair: topics too, on brokers with faults"
    )
    parser.add_argument(
        "--bookies", type=int, help="default: five more than an ensemble; with --repair three more"
    )
    parser.add_argument(
        "--down-max", type=int, help="bookies with a fault at a time: 2; with --repair 1"
    )
    parser.add_argument("--parallel", type=int, default=2, help="ledgers written at a time")
    parser.add_argument(
        "--megabytes-per-s", type=float, help="bounds the disk used: 6; with --repair 1.5"
    )
    parser.add_argument("--keep", type=Path, help="keep history and data in this directory")
    parser.add_argument(
        "--other",
        type=Path,
        metavar="DIR",
        help="half of the bookies' starts, writers and contenders run the checkout in DIR",
    )
    given = parser.parse_args()
    ack, spares, down_max, megabytes_per_s = DEFAULTS[given.repair]
    campaign = Campaign(
        seconds=given.minutes * 60,
        seed=given.seed,
        ensemble=given.ensemble,
        write=given.write,
        ack=given.ack or ack,
        in_sync=given.in_sync,
        bookies=given.bookies or given.ensemble + spares,
        down_max=given.down_max or down_max,
        parallel=given.parallel,
        megabytes_per_s=given.megabytes_per_s or megabytes_per_s,
        keep=given.keep,
        other_code=given.other and given.other.resolve(),
    )
    if given.topics and not given.repair:
        parser.error("--topics needs --repair; python -m tests.campaign.topics is without it")
    topics_seed = given.seed if given.topics else None
    world = partial(RepairWorld, topics_seed=topics_seed) if given.repair else None
    summary = asyncio.run(run_campaign(campaign, world))
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 0 if summary["is_well"] else 1


if __name__ == "__main__":
    sys.exit(main())

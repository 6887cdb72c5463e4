"""`python -m tests.campaign.zookeeper --minutes 5 --seed 1`: a campaign whose metadata service is
an ensemble of three ZooKeeper servers, with faults in its servers.

Prints one JSON object. The exit status is 1 if any guarantee was broken.
"""

import argparse
import asyncio
import json
import random
import sys
from pathlib import Path

from tests.campaign.runner import Campaign, run_campaign
from tests.campaign.zookeeper.world import EnsembleWorld


def main() -> int:
    """Run one campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.zookeeper", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.Random().randrange(2**32))
    parser.add_argument("--bookies", type=int, default=6)
    parser.add_argument("--down-max", type=int, default=1, help="bookies with a fault at a time")
    parser.add_argument("--megabytes-per-s", type=float, default=2.0, help="bounds the load")
    parser.add_argument("--keep", type=Path, help="keep history and data in this directory")
    given = parser.parse_args()
    campaign = Campaign(
        seconds=given.minutes * 60,
        seed=given.seed,
        bookies=given.bookies,
        down_max=given.down_max,
        megabytes_per_s=given.megabytes_per_s,
        keep=given.keep,
    )
    summary = asyncio.run(run_campaign(campaign, EnsembleWorld))
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 0 if summary["is_well"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.campaign.topics --minutes 10 --seed 1`: random faults under stock Kafka clients,
then the check of all results.

Prints one JSON object. The exit status is 1 if any guarantee was broken.
"""

import argparse
import asyncio
import json
import random
import sys
from dataclasses import fields
from pathlib import Path

from tests.campaign.topics.clients import Load
from tests.campaign.topics.runner import Campaign, run_campaign


def main() -> int:
    """Run one campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.topics", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.Random().randrange(2**32))
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--bookies", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=6, help="for each of the two topics")
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--transactors", type=int, default=3)
    parser.add_argument("--members", type=int, default=3, help="for each group")
    parser.add_argument("--protocols", nargs="+", default=["classic", "consumer"])
    parser.add_argument("--watchers", type=int, default=1, help="readers of committed records")
    parser.add_argument("--records-per-s", type=float, default=0.0, help="0: no limit")
    parser.add_argument(
        "--brokers-down-max", type=int, default=2, help="brokers with faults at once"
    )
    parser.add_argument(
        "--bookies-down-max", type=int, default=2, help="bookies with faults at once"
    )
    parser.add_argument("--keep", type=Path, help="keep histories and data in this directory")
    given = vars(parser.parse_args())
    given["protocols"] = tuple(given["protocols"])
    load = Load(**{field.name: given.pop(field.name) for field in fields(Load)})
    campaign = Campaign(given.pop("minutes") * 60, load, **given)
    summary = asyncio.run(run_campaign(campaign))
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return 0 if summary["is_well"] else 1


if __name__ == "__main__":
    sys.exit(main())

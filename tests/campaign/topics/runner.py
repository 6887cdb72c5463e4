"""One campaign on topics: a cluster, its faults, and the clients with their checks.

Leaves the clients and the checks to `clients`, and the faults to
`tests.campaign.faults`.
"""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

from quire.local_cluster import LocalCluster
from tests.campaign.faults import Group
from tests.campaign.injecting import injecting
from tests.campaign.topics.clients import Load, Summary, TopicClients


@dataclass(frozen=True, slots=True)
class Campaign:
    """Options of a campaign."""

    seconds: float
    load: Load
    brokers: int = 3
    bookies: int = 5
    brokers_down_max: int = 2
    bookies_down_max: int = 2
    keep: Path | None = None
    """Directory that keeps histories and the cluster's data; None: they are removed."""


async def run_campaign(campaign: Campaign) -> Summary:
    """Run one campaign in a separate directory; return its summary."""
    directory = campaign.keep or Path(tempfile.mkdtemp(prefix="quire-topics-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        return await _run(campaign, directory)
    finally:
        if campaign.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


async def _run(campaign: Campaign, directory: Path) -> Summary:
    rng = Random(campaign.load.seed)
    async with LocalCluster(campaign.bookies, directory / "cluster", campaign.brokers) as cluster:
        bootstrap = ",".join(broker.address for broker in cluster.brokers)
        clients = TopicClients(campaign.load, directory, bootstrap)
        groups = [
            Group("broker", cluster.brokers, campaign.brokers_down_max),
            Group("bookie", cluster.bookies, campaign.bookies_down_max),
        ]
        faults = clients.faults(groups, rng, cluster.zookeeper)
        try:
            await clients.start()
            stop = asyncio.Event()
            asyncio.get_running_loop().call_later(campaign.seconds, stop.set)
            async with injecting(faults) as running:
                await clients.watch(running, stop)
            return await clients.finish(faults.log)
        finally:
            await clients.workers.kill_all()

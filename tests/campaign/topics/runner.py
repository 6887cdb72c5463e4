"""One campaign on topics: a cluster, its faults, and the clients with their checks.

Leaves the clients and the checks to `clients`, and the faults to `faults`.
"""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

from quire.local_cluster import LocalCluster
from tests.campaign.topics.clients import Load, Summary, TopicClients
from tests.campaign.topics.faults import Bounds, FaultInjector


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
    bounds = Bounds(campaign.brokers_down_max, campaign.bookies_down_max)
    rng = Random(campaign.load.seed)
    async with LocalCluster(campaign.bookies, directory / "cluster", campaign.brokers) as cluster:
        bootstrap = ",".join(broker.address for broker in cluster.brokers)
        clients = TopicClients(campaign.load, directory, bootstrap)
        injector = FaultInjector(cluster, rng, bounds, clients.workers.replace_one, clients.say)
        try:
            await clients.start()
            stop = asyncio.Event()
            asyncio.get_running_loop().call_later(campaign.seconds, stop.set)
            faults = asyncio.create_task(injector.run())
            await clients.watch(faults, stop)
            injector.stop()
            await faults
            await injector.settle()
            return await clients.finish(injector.counts, injector.complaints)
        finally:
            await clients.workers.kill_all()

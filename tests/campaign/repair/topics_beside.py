"""Topics in a campaign of repair: clients and faults of brokers, on the cluster that loses bookies.

Leaves the clients and their checks to `tests.campaign.topics.clients`, and every other fault to
`losses`.

Invariants: bookies and ZooKeeper have no fault from here. When `finish` returns, the brokers have
ended, and all ledgers of the topics are closed.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from ledger_client import LedgerClient
from quire.local_cluster import LocalCluster
from tests.campaign.faults import Group
from tests.campaign.injecting import injecting
from tests.campaign.repair.commands import Commands
from tests.campaign.topics.clients import Load, TopicClients

BROKERS: Final = 2
RECORDS_PER_S: Final = 300.0


class TopicsBeside:
    """Clients of topics from `start` to `finish`, on brokers with faults."""

    def __init__(self, cluster: LocalCluster, directory: Path, seed: int) -> None:
        self._cluster = cluster
        bootstrap = ",".join(broker.address for broker in cluster.brokers)
        load = Load(
            seed, partitions=4, producers=1, transactors=1, members=1, records_per_s=RECORDS_PER_S
        )
        self._clients = TopicClients(load, directory, bootstrap)
        self._faults = self._clients.faults([Group("broker", cluster.brokers, 1)], Random(seed))
        self._stop = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the clients and the faults."""
        await self._clients.start()
        self._watching = asyncio.create_task(self._watch())

    async def finish(self) -> tuple[Sequence[str], dict[str, Any]]:
        """End the faults, the clients and the brokers; return the complaints and the summary."""
        assert self._watching is not None, "it was started"
        self._stop.set()
        await self._watching
        summary = await self._clients.finish(self._faults.log)
        for broker in self._cluster.brokers:
            await broker.stop()
        complaints = [f"topics: {each}" for each in summary["complaints"]]
        complaints += [f"topics: {ledger}" for ledger in await self._close_ledgers()]
        if not summary["is_well"] and not complaints:
            complaints.append(f"topics: {summary['checked']}")
        return complaints, summary

    async def aclose(self) -> None:
        """End what still runs."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._clients.workers.kill_all()

    async def _watch(self) -> None:
        async with injecting(self._faults) as running:
            await self._clients.watch(running, self._stop)

    async def _close_ledgers(self) -> list[str]:
        """Recover each ledger that the brokers left open; return complaints."""
        uri, complaints = self._cluster.metadata_uri, []
        async with LedgerClient(uri) as client:
            left = [info.id async for info in client.list_ledgers() if not info.is_closed]
        for ledger_id in left:
            answer = await Commands(uri).quire("ledger", "recover", str(ledger_id))
            if answer.status:
                complaints.append(f"ledger {ledger_id} was not recovered: {answer.error}")
        return complaints

"""Campaign: bookies are killed with kill -9, all at once or some, and restarted under a writer.

Leaves the writer to `ledger_writer`, and judging to `tests.campaign.checker`. After a number of
cycles, every ledger is closed and read completely, by a new client and from each replica directly.
"""

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import Final

from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.campaign.checker import check_campaign
from tests.campaign.writing_process import WritingProcess, writing_process
from tests.faults.budget import Budget, Summary
from tests.faults.children import make_directory
from tests.faults.ledger_writer import MODULE
from tests.support.quire.forks.forked_server import forked_servers

CYCLES_SMALL: Final = 3
CYCLES_FULL: Final = 300
CYCLES_BETWEEN_CHECKS: Final = 10
BOOKIES: Final = 5
QUORUMS: Final = ((3, 3, 2), (3, 3, 3), (5, 3, 2))
ALL_SHARE: Final = 0.5
STAGGER_S_MAX: Final = 0.15
DOWN_S_MAX: Final = 0.5
AGAIN_SHARE: Final = 0.2
"""Share of kills as soon as the bookie serves again: what it replayed must still be there."""
ACKS: Final = 50


class ClusterKills:
    """One campaign that runs."""

    def __init__(self, budget: Budget, directory: Path) -> None:
        wanted = budget.cycles(small=CYCLES_SMALL, full=CYCLES_FULL)
        self.summary = Summary("cluster_kills", budget, wanted)
        self._rng = Random(f"cluster kills {budget.seed}")
        self._directory = directory

    async def run(self) -> None:
        """Run all cycles on one cluster."""
        async with LocalCluster(BOOKIES, self._directory / "cluster") as cluster:
            while self.summary.is_wanting():
                await self._do_cycles_and_check(cluster)

    async def _do_cycles_and_check(self, cluster: LocalCluster) -> None:
        summary, uri, seed = self.summary, cluster.metadata_uri, self._rng.randrange(2**32)
        options = dict(zip(("ensemble", "write", "ack"), self._rng.choice(QUORUMS), strict=True))
        name = f"writer-{summary.cycles}"
        async with writing_process(MODULE, uri, self._directory, name, seed, **options) as writer:
            first = summary.cycles
            while summary.is_wanting() and summary.cycles < first + CYCLES_BETWEEN_CHECKS:
                await self._do_cycle(cluster, writer)
                summary.cycles += 1
            await writer.wait_for_acks(ACKS)
            history = await writer.stop()
        summary.counts["acknowledged entries"] += history.acked_count
        summary.counts["ledgers"] += len(history.ledgers)
        for name, count in history.failures.items():
            summary.counts[f"writer told {name}"] += count
        summary.violations += history.complaints
        report = await check_campaign(uri, history, seed, None, lambda _: None)
        summary.counts["fragments"] += report.fragments
        summary.counts["copies read"] += report.copies_read
        summary.violations += [
            f"{violation.kind}: {violation.text}" for violation in report.violations
        ]

    async def _do_cycle(self, cluster: LocalCluster, writer: WritingProcess) -> None:
        rng, counts = self._rng, self.summary.counts
        await writer.wait_for_acks(ACKS)
        if rng.random() < ALL_SHARE:
            counts["all killed at once"] += 1
            hurt = list(cluster.bookies)
            for bookie in hurt:
                bookie.kill()
        else:
            hurt = rng.sample(cluster.bookies, rng.randint(1, BOOKIES - 1))
            counts[f"{len(hurt)} killed"] += 1
            for bookie in hurt:
                bookie.kill()
                await asyncio.sleep(rng.uniform(0.0, STAGGER_S_MAX))
        counts["kills"] += len(hurt)
        await asyncio.sleep(rng.uniform(0.0, DOWN_S_MAX))
        again = [bookie for bookie in hurt if rng.random() < AGAIN_SHARE]
        await asyncio.gather(*[_restart(bookie, is_again=bookie in again) for bookie in hurt])
        counts["kills"] += len(again)


async def _restart(bookie: LocalBookie, *, is_again: bool) -> None:
    await bookie.restart()
    if is_again:
        bookie.kill()
        await bookie.restart()


def run(budget: Budget) -> Summary:
    """Run the campaign."""
    directory = make_directory("cluster-kills", in_memory=False)
    try:
        campaign = ClusterKills(budget, directory)
        with forked_servers():  # most of the time of a restart is that of imports
            asyncio.run(campaign.run())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return campaign.summary

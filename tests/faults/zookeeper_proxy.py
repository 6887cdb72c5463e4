"""Campaign: ledgers are written through a slow, silent or lossy ZooKeeper while bookies die.

Leaves the losses to `proxy`, the writer to `ledger_writer`, and judging to `tests.campaign.checker`
(which reads metadata without the proxy). Each death of a bookie in the writer's ensemble forces an
ensemble change, and ledgers are short: so writes of every kind have an unknown outcome.
Source: protocol rules 1.3, 5; reliability design, "Coordination".
"""

import asyncio
import contextlib
import shutil
from pathlib import Path
from random import Random
from typing import Final

from ledger_client import LedgerClient
from quire.local.local_server import LocalBookie
from quire.local_cluster import CHROOT, LocalCluster
from tests.campaign.checker import check_campaign
from tests.campaign.direct import Direct, open_direct
from tests.campaign.history import History
from tests.campaign.writing_process import WritingProcess, writing_process
from tests.faults.budget import Budget, Summary
from tests.faults.children import make_directory
from tests.faults.ledger_writer import MODULE
from tests.faults.proxy import HOST, Loss, Proxy

CYCLES_SMALL: Final = 6
CYCLES_FULL: Final = 200
CYCLES_BETWEEN_CHECKS: Final = 12
BOOKIES: Final = 6
QUORUM: Final = {"ensemble": 3, "write": 3, "ack": 2}
LEDGER_S: Final = 0.3
METADATA_TIMEOUT_S: Final = 4.0
SESSION_TIMEOUT_S: Final = 3.0
KILL_SHARE: Final = 0.6
FAULTS: Final = ("answer", "request", "answer", "delay", "silence", "cut")
DELAY_S: Final = 0.05
SILENCE_S: Final = (0.2, 4.5)
LOSSES_EACH: Final = 3
SLOT_S: Final = 0.3
LOSS_S_MAX: Final = 1.5
POLL_S: Final = 0.01
ACKS: Final = 25


class ZooKeeperLosses:
    """One campaign that runs."""

    def __init__(self, budget: Budget, directory: Path) -> None:
        wanted = budget.cycles(small=CYCLES_SMALL, full=CYCLES_FULL)
        self.summary = Summary("zookeeper_proxy", budget, wanted)
        self._rng = Random(f"zookeeper proxy {budget.seed}")
        self._directory = directory

    async def run(self) -> None:
        """Run all cycles on one cluster."""
        async with (
            LocalCluster(BOOKIES, self._directory / "cluster") as cluster,
            LedgerClient(cluster.metadata_uri) as other,
            Proxy(cluster.zookeeper.port, Random(self._rng.random())) as proxy,
        ):
            while self.summary.is_wanting():
                await self._do_cycles_and_check(cluster, proxy, other)
            self.summary.counts += proxy.counts

    async def _do_cycles_and_check(
        self, cluster: LocalCluster, proxy: Proxy, other: LedgerClient
    ) -> None:
        summary, seed = self.summary, self._rng.randrange(2**32)
        uri, name = f"zk://{HOST}:{proxy.port}{CHROOT}", f"writer-{summary.cycles}"
        options = QUORUM | {
            "ledger_s": LEDGER_S,
            "metadata_timeout_s": METADATA_TIMEOUT_S,
            "session_timeout_s": SESSION_TIMEOUT_S,
        }
        async with writing_process(MODULE, uri, self._directory, name, seed, **options) as writer:
            first = summary.cycles
            while summary.is_wanting() and summary.cycles < first + CYCLES_BETWEEN_CHECKS:
                await self._do_cycle(cluster, proxy, other, writer)
                summary.cycles += 1
            history = await writer.stop()
        await self._check(cluster.metadata_uri, history, seed)

    async def _do_cycle(
        self, cluster: LocalCluster, proxy: Proxy, other: LedgerClient, writer: WritingProcess
    ) -> None:
        counts = self.summary.counts
        await writer.wait_for_acks(ACKS)
        fault = FAULTS[self.summary.cycles % len(FAULTS)]
        counts[f"cycles of {fault}"] += 1
        work = asyncio.ensure_future(self._disturb(proxy, fault))
        killed = await self._kill_member(cluster, other, writer)
        await work
        proxy.loss, proxy.delay_s = Loss.NOTHING, 0.0
        if killed is not None:
            counts["members killed"] += 1
            await killed.restart()

    async def _disturb(self, proxy: Proxy, fault: str) -> None:
        rng = self._rng
        match fault:
            case "delay":
                proxy.delay_s = DELAY_S
                await asyncio.sleep(LOSSES_EACH * SLOT_S)
            case "silence":
                proxy.silence()
                await asyncio.sleep(rng.uniform(*SILENCE_S))
                if rng.random() < 0.5:
                    proxy.speak()
                else:
                    proxy.cut()
            case "cut":
                for _ in range(LOSSES_EACH):
                    await asyncio.sleep(rng.uniform(0.0, SLOT_S))
                    proxy.cut()
            case _:
                for _ in range(LOSSES_EACH):
                    await asyncio.sleep(rng.uniform(0.0, SLOT_S))
                    await _lose(proxy, Loss(fault))

    async def _kill_member(
        self, cluster: LocalCluster, other: LedgerClient, writer: WritingProcess
    ) -> LocalBookie | None:
        """Kill a bookie that the writer sends to, so that the writer must change its ensemble."""
        rng = self._rng
        if rng.random() >= KILL_SHARE:
            return None
        await asyncio.sleep(rng.uniform(0.0, SLOT_S))
        ledger_id = list(writer.history.ledgers)[-1]
        info = await other.ledger_info(ledger_id)
        member = rng.choice(info.fragments[-1].ensemble)
        bookie = next(local_bookie for local_bookie in cluster.bookies if local_bookie.id == member)
        bookie.kill()
        return bookie

    async def _check(self, uri: str, history: History, seed: int) -> None:
        """Read all ledgers, and check whether metadata names only possible bookies."""
        summary = self.summary
        report = await check_campaign(uri, history, seed, None, lambda _: None)
        summary.violations += [
            f"{violation.kind}: {violation.text}" for violation in report.violations
        ]
        summary.violations += history.complaints
        counts = summary.counts
        counts["acknowledged entries"] += history.acked_count
        counts["ledgers"] += len(history.ledgers)
        counts["fragments"] += report.fragments
        counts["copies read"] += report.copies_read
        for name, count in history.failures.items():
            counts[f"writer told {name}"] += count
        async with open_direct(uri) as direct:
            for ledger_id in history.ledgers:
                summary.violations += await _odd_metadata(direct, ledger_id)


async def _lose(proxy: Proxy, loss: Loss) -> None:
    """Lose the request or the answer of the next write; return if there is no write for a while."""
    proxy.loss = loss
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOSS_S_MAX):
            while proxy.loss is loss:  # noqa: ASYNC110  a connection's own step ends it
                await asyncio.sleep(POLL_S)


async def _odd_metadata(direct: Direct, ledger_id: int) -> list[str]:
    """Return metadata that no history of a ledger can produce."""
    metadata = await direct.metadata(ledger_id)
    return [
        f"ledger {ledger_id} has the ensemble {fragment.ensemble}"
        for fragment in metadata.fragments
        if len(dict.fromkeys(fragment.ensemble)) != metadata.quorum.ensemble_size
    ]


def run(budget: Budget) -> Summary:
    """Run the campaign."""
    directory = make_directory("zookeeper-proxy", in_memory=False)
    try:
        campaign = ZooKeeperLosses(budget, directory)
        asyncio.run(campaign.run())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return campaign.summary

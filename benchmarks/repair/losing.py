"""Cluster that loses a bookie: its closed ledgers, one process of repair, and the wait until all is
copied.

Leaves what is measured to the scripts.

Invariants: bookies have no process of repair beside them, so the one that is started here is the
only worker, and the auditor. Every ledger is on the first three bookies; the fourth starts after
they are filled, and gets all copies.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from time import perf_counter, time
from typing import Final

from benchmarks.cluster import Running, running
from benchmarks.ledgers.workload import Load
from benchmarks.processes import usage_of
from ledger_client import Quorum
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.cluster import open_cluster_store
from metadata.repair.settings_store import RepairSettingsStore
from quire.local.child_process import ChildProcess, child_variables

REPLICAS: Final = Quorum(3, 3, 2)
ENTRY_BYTES: Final = 1024
LOOK_S: Final = 0.02
REPAIR_S_MAX: Final = 900.0
STARTED_S_MAX: Final = 60.0
LOST_AFTER_S: Final = 1
"""Seconds after which a bookie that is away is lost: the wait is not part of the figures."""


class LosingCluster:
    """A cluster with three full bookies and an empty one."""

    def __init__(
        self, cluster: Running, ledgers: LedgerStore, settings: RepairSettingsStore
    ) -> None:
        self.running = cluster
        self._ledgers = ledgers
        self._settings = settings
        self._filled: list[LedgerId] = []

    async def fill(self, load: Load, ledger_count: int) -> float:
        """Append a load to each of several ledgers, with `append_many`, and close them; return the
        seconds in which they were confirmed.
        """
        seconds = 0.0
        for _ in range(ledger_count):
            async with self.running.client.create_ledger(REPLICAS) as ledger:
                start = perf_counter()
                await ledger.append_many(load.payloads())
                seconds += perf_counter() - start
                await ledger.wait_fully_replicated(ledger.last_confirmed)
                self._filled.append(LedgerId(ledger.id))
        return seconds

    async def set_limits(self, **values: int) -> None:
        """Change settings of repair."""
        await self._settings.change(
            lost_after_s=LOST_AFTER_S, urgent_after_s=LOST_AFTER_S, **values
        )

    @asynccontextmanager
    async def worker(self, log_path: Path) -> AsyncIterator[ChildProcess]:
        """Run one process of repair until the end of the block."""
        command = (sys.executable, "-m", "quire.cli.main", "repair", "run-worker", "--audit")
        uri = self.running.cluster.metadata_uri
        flags = ("--metadata", uri, "--die-with-parent")
        child = ChildProcess("repair", (*command, *flags), log_path)
        await child.start(child_variables())
        try:
            yield child
        finally:
            await child.stop()

    async def lose_first(self) -> BookieId:
        """Kill the first bookie; return its id once a copy has begun."""
        bookie = self.running.bookies[0]
        bookie.kill()
        lost = BookieId(bookie.id)
        await self._until(lost, STARTED_S_MAX, has_begun=True)
        return lost

    async def wait_repaired(self, lost: BookieId) -> None:
        """Wait until no ledger names a bookie."""
        await self._until(lost, REPAIR_S_MAX, has_begun=False)

    async def repaired_share(self, lost: BookieId) -> float:
        """Return the share of the ledgers that do not name a bookie any more."""
        ledgers = [(await self._ledgers.get(ledger_id))[0] for ledger_id in self._filled]
        return sum(not _named([metadata], lost) for metadata in ledgers) / len(ledgers)

    async def _until(self, lost: BookieId, seconds_max: float, *, has_begun: bool) -> None:
        async with asyncio.timeout(seconds_max):
            while True:
                ledgers = [(await self._ledgers.get(ledger_id))[0] for ledger_id in self._filled]
                if has_begun and (_incoming(ledgers) or not _named(ledgers, lost)):
                    return
                if not has_begun and not _named(ledgers, lost):
                    return
                await asyncio.sleep(LOOK_S)


def cpu_s(pids: Sequence[int]) -> float:
    """Return the processor time that some processes have used."""
    return sum(usage_of(pid).cpu_s or 0.0 for pid in pids)


@asynccontextmanager
async def losing_cluster(directory: Path) -> AsyncIterator[LosingCluster]:
    """Start three bookies without repair; stop them at the end of the block."""
    async with running(directory, 3, bookie_options={"repair": "false"}) as cluster:
        rng = Random(1)
        store = await open_cluster_store(
            cluster.cluster.metadata_uri, rng=rng, session_timeout_s=30.0
        )
        try:
            ledgers = LedgerStore(store, rng, lambda: int(time() * 1000))
            yield LosingCluster(cluster, ledgers, RepairSettingsStore(store, rng))
        finally:
            await store.aclose()


def _named(ledgers: Sequence[LedgerMetadata], bookie_id: BookieId) -> bool:
    return any(bookie_id in part.ensemble for ledger in ledgers for part in ledger.fragments)


def _incoming(ledgers: Sequence[LedgerMetadata]) -> bool:
    return any(part.incoming for ledger in ledgers for part in ledger.fragments)

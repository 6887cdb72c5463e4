"""Cluster for the benchmarks: bookies as processes, a real ZooKeeper, a client.

Leaves the processes to `quire.local_cluster`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Metered, PeakMemory, usage_of
from ledger_client import ClientConfig, LedgerClient
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster


@dataclass(frozen=True, slots=True)
class Running:
    """A running cluster, and a client of it in this process."""

    cluster: LocalCluster
    client: LedgerClient

    @property
    def bookies(self) -> Sequence[LocalBookie]:
        """Bookies, in the order of their creation."""
        return self.cluster.bookies

    def metered(self) -> Metered:
        """Begin to count the resources that the client's process and the bookies use."""
        return Metered([bookie.pid for bookie in self.bookies])

    def largest_bookie(self) -> PeakMemory:
        """Return the memory of the bookie that now uses most."""
        peak = PeakMemory()
        for bookie in self.bookies:
            peak.note(usage_of(bookie.pid))
        return peak


@asynccontextmanager
async def running(
    directory: Path,
    bookie_count: int,
    config: ClientConfig | None = None,
    *,
    bookie_options: Mapping[str, str] | None = None,
    secure: bool = False,
) -> AsyncIterator[Running]:
    """Start `bookie_count` bookies with their data in `directory`; stop them at the end of the
    block. `bookie_options` are further options of `quire bookie run`.
    """
    async with (
        LocalCluster(
            bookies=bookie_count,
            data_dir=directory,
            bookie_options=bookie_options,
            secure=secure,
        ) as cluster,
        LedgerClient(cluster.metadata_uri, config=config) as client,
    ):
        yield Running(cluster, client)

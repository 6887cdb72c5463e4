"""The cluster of a campaign, and the faults in it, as the runner sees them.

Leaves a cluster with one ZooKeeper server to `quire.local_cluster`, one with three to
`zookeeper.world`, and one that loses bookies for good to `repair.world`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

from quire.local_cluster import LocalCluster
from tests.campaign.availability import FaultTime
from tests.campaign.faults import FaultInjector, Targets


class Faults(Protocol):
    """Injects faults from `run` to `stop`; all have ended when `settle` returns."""

    @property
    def counts(self) -> Counter[str]:
        """Number of faults by name."""

    @property
    def complaints(self) -> Sequence[str]:
        """Processes that ended by themselves, or did not come back."""

    @property
    def times(self) -> Sequence[FaultTime]:
        """The faults that may explain errors."""

    async def run(self) -> None:
        """Inject faults until `stop`."""

    def stop(self) -> None:
        """Start no more faults."""

    async def settle(self) -> None:
        """Wait until every fault has ended."""


class World(Protocol):
    """A cluster that runs inside the block."""

    @property
    def metadata_uri(self) -> str:
        """Address of the cluster's metadata, for clients."""

    def faults(self, rng: Random, down_max: int, targets: Targets) -> Faults:
        """Return the faults of this cluster."""

    async def finish(self) -> tuple[Sequence[str], dict[str, Any]]:
        """End what runs beside the cluster, once all faults and clients have ended; return the
        complaints, and a part of the summary.
        """

    async def __aenter__(self) -> "World":
        """Start the cluster."""

    async def __aexit__(self, *_: object) -> None:
        """Stop the cluster."""


MakeWorld = Callable[[int, Path], World]
"""Makes the cluster of so many bookies in a directory."""


class LocalWorld:
    """A cluster with one ZooKeeper server."""

    def __init__(self, bookies: int, directory: Path, other_code: Path | None = None) -> None:
        self._cluster = LocalCluster(bookies, directory)
        self._other_code = other_code

    @property
    def metadata_uri(self) -> str:
        return self._cluster.metadata_uri

    def faults(self, rng: Random, down_max: int, targets: Targets) -> FaultInjector:
        cluster = self._cluster
        return FaultInjector(
            cluster.bookies,
            rng,
            down_max,
            targets,
            zookeeper=cluster.zookeeper,
            other_code=self._other_code,
        )

    async def finish(self) -> tuple[Sequence[str], dict[str, Any]]:
        return (), {}

    async def __aenter__(self) -> Self:
        await self._cluster.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.aclose()

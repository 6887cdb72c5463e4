"""The cluster of a campaign, and the faults in it, as the runner sees them.

Leaves a cluster with one ZooKeeper server to `quire.local_cluster`, one with three to
`zookeeper.world`, and one that loses bookies for good to `repair.world`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from tests.campaign.faults import FaultInjector, Group, Targets
from tests.campaign.injecting import Faults


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

    def __init__(
        self, bookies: int, directory: Path, other_code: Path | None = None, *, brokers: int = 0
    ) -> None:
        """With `other_code` half of the bookies' starts run the code in that directory."""
        self._cluster = LocalCluster(bookies, directory, brokers)
        self._other_code = other_code
        self._bookies = list[LocalBookie]()
        """The bookies that faults may hit."""

    @property
    def metadata_uri(self) -> str:
        """Address of the cluster's metadata."""
        return self._cluster.metadata_uri

    def faults(self, rng: Random, down_max: int, targets: Targets) -> Faults:
        """Return the faults of bookies, ZooKeeper and clients."""
        return self._injector(rng, down_max, targets)

    def _injector(self, rng: Random, down_max: int, targets: Targets) -> FaultInjector:
        self._bookies = list(self._cluster.bookies)
        group = Group("bookie", self._bookies, down_max, self._other_code)
        return FaultInjector([group], rng, targets, zookeeper=self._cluster.zookeeper)

    async def finish(self) -> tuple[Sequence[str], dict[str, Any]]:
        """Do nothing: nothing runs beside the cluster."""
        return (), {}

    async def __aenter__(self) -> Self:
        await self._cluster.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.aclose()

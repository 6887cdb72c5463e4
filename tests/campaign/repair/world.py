"""A cluster that loses bookies for good and repairs itself, and its state at the end.

Leaves the losses to `losses`, topics to `topics_beside`, and reading every copy to `replicas` and
`tests.campaign.checker`.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from metadata.repair.lifecycle import Lifecycle
from quire.errors import ExitCode, LocalClusterError
from quire.repair.auditor import PASS_EVERY_S
from quire.server.overriding import override
from tests.campaign.faults import Targets
from tests.campaign.repair.commands import Commands
from tests.campaign.repair.losses import POLL_S, Losses
from tests.campaign.repair.replicas import check_replicas
from tests.campaign.repair.topics_beside import BROKERS, TopicsBeside
from tests.campaign.world import LocalWorld

SETTINGS: Final = ("lost_after_s=10", "urgent_after_s=3")
HEALTHY_S_MAX: Final = PASS_EVERY_S + 60.0
"""Maximum time until the cluster is healthy, after nothing is left to repair. An in-sync ledger may
have closed with fewer members, and the next pass finds it.
"""


class RepairWorld(LocalWorld):
    """A cluster with one ZooKeeper server, and a process of repair beside each bookie; with a
    `topics_seed` also brokers, and clients of topics.
    """

    def __init__(self, bookies: int, directory: Path, topics_seed: int | None = None) -> None:
        super().__init__(bookies, directory, brokers=0 if topics_seed is None else BROKERS)
        self._directory = directory
        self._topics_seed = topics_seed
        self._topics: TopicsBeside | None = None
        self._losses: Losses | None = None

    @override
    def faults(self, rng: Random, down_max: int, targets: Targets) -> Losses:
        """Return the losses, with all faults of other campaigns."""
        injector = self._injector(Random(rng.getrandbits(64)), down_max, targets)
        self._losses = Losses(self._cluster, self._bookies, injector, rng, targets)
        return self._losses

    @override
    async def finish(self) -> tuple[Sequence[str], dict[str, Any]]:
        """Wait until nothing is left to repair, and check the cluster."""
        losses = self._losses
        assert losses is not None, "it had faults"
        complaints: list[str] = []
        summary: dict[str, Any] = {}
        if self._topics is not None:
            of_topics, summary["topics"] = await self._topics.finish()
            complaints += of_topics
        # A bookie that had other faults may have been lost for a moment: all must be active.
        some = next(bookie for bookie in self._cluster.bookies if bookie.is_running)
        _, late = await losses.restored(some.id, Lifecycle.ACTIVE)
        health, unhealthy = await self._healthy()
        replicas = await check_replicas(self.metadata_uri, losses.removed)
        complaints += [each for each in (late, unhealthy) if each]
        complaints += replicas.complaints
        summary["repair"] = {
            "losses": losses.as_json(),
            "health": health,
            "replicas": replicas.as_json(),
        }
        return complaints, summary

    @override
    async def __aenter__(self) -> Self:
        await super().__aenter__()
        answer = await Commands(self.metadata_uri).quire("repair", "settings", *SETTINGS)
        if answer.status != ExitCode.DONE:
            await self._cluster.aclose()
            raise LocalClusterError(f"the settings of repair were refused: {answer.error}")
        if self._topics_seed is not None:
            directory = self._directory.parent / "topics"
            self._topics = TopicsBeside(self._cluster, directory, self._topics_seed)
            await self._topics.start()
        return self

    @override
    async def __aexit__(self, *_: object) -> None:
        if self._topics is not None:
            await self._topics.aclose()
        await super().__aexit__()

    async def _healthy(self) -> tuple[str, str]:
        """Return what `quire cluster health` says, and a complaint, or an empty text."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + HEALTHY_S_MAX
        while True:
            answer = await Commands(self.metadata_uri).quire("cluster", "health")
            says = str(answer.row.get("state", answer.error))
            not_active = answer.row.get("bookies_not_active", {})
            others = {each: n for each, n in not_active.items() if n and each != Lifecycle.REMOVED}
            if answer.status == ExitCode.DONE and not others:
                return says, ""
            if loop.time() > end_s:
                return says, f"not healthy: {answer.row or answer.error}"
            await asyncio.sleep(POLL_S)

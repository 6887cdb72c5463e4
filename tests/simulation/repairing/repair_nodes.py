"""Processes of repair in a simulated cluster.

Leaves what they do to `quire.repair`, and the faults to `tests.simulation.faults`.

Source: protocol section 9.
"""

import asyncio
from dataclasses import replace

from typing_extensions import override

from quire.repair.repair_process import RepairProcess, RepairRoles
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import Node
from tests.simulation.store import NodeStore


class RepairNode(Node):
    """Machine of one process that audits and repairs."""

    def __init__(self, cluster: Cluster, number: int, roles: RepairRoles | None = None) -> None:
        super().__init__(cluster, f"repair-{number}")
        self._roles = roles or RepairRoles()
        self.process: RepairProcess | None = None

    @override
    async def _main(self) -> None:
        cluster, rng = self.cluster, self.draw()
        timeout_s = cluster.plan.session_timeout_s
        self.store = store = NodeStore(
            cluster.metadata, cluster.store_faults, session_timeout_s=timeout_s
        )
        self.process = process = RepairProcess(
            store,
            process_id=f"{self.host}-{self.starts}",
            rng=rng,
            secret_rng=rng,
            wall_clock_ms=self.wall_clock_ms,
            config=replace(cluster.plan.config, session_timeout_s=timeout_s),
            roles=self._roles,
        )
        try:
            await process.start()
            await asyncio.Event().wait()
        except (Exception, asyncio.CancelledError):
            await process.aclose()
            raise

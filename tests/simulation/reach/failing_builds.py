"""Fault: a client has no memory for the bytes of a batch whose entries have their ids.

Leaves the rate to `tests.simulation.plan`, and what a writer may say then to
`tests.simulation.availability.decision`.

Invariant: only the process that was chosen fails, at its next batch. The error that it reports to
the loop is no finding.
Source: protocol rule 4.1.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from bookie.wire.batch import build_batch
from ledger_client.writing import outbox
from tests.simulation.availability.decision import memory_of
from tests.simulation.cluster import Cluster
from tests.simulation.loop import NODE


class DrawnMemoryError(MemoryError):
    """The failure that this module draws."""


class FailingBuilds:
    """Batches of one run that cannot be made."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng

    async def fail_build(self) -> None:
        """Let the next batch of a client that writes fail."""
        writing = [each for each in self._cluster.clients if each.is_running and each.writes]
        if writing:
            client = self._rng.choice(writing)
            assert client.node is not None
            self._cluster.failing_builds[client.node] = client.host


@contextmanager
def failing_builds(cluster: Cluster) -> Iterator[None]:
    """Let the batches fail that `FailingBuilds` has drawn."""
    drawn = cluster.failing_builds

    def build_or_fail(*arguments: object) -> bytearray:
        host = drawn.pop(NODE.get(), None) if drawn else None
        if host is not None:
            cluster.network.faults.add(memory_of(host))
            raise DrawnMemoryError
        return build_batch(*arguments)  # type: ignore[arg-type]

    with patch.object(outbox, "build_batch", build_or_fail):
        yield

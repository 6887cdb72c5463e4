"""Checks of the complete cluster in the background, so that no page waits for one.

Leaves the check to `quire.operate.health`, reading all ledgers to `quire.operate.ledger_pass`, and
which copies would be lost to `metadata.ledgers.copies`.

Invariants: one check runs at a time; after each one there is a pause of at least REST times its
length; a check that fails leaves the last result, with its age.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataError, MetadataFormatError
from metadata.ids import BookieId
from metadata.ledgers.copies import Loss, WriteSet, fewest_copies_of, loss_of, write_sets
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.operate.health import Health, check_health
from quire.operate.ledger_pass import LedgerPass, Read
from quire.server.server_log import ServerLog

REST: Final = 4.0
RETRY_S: Final = 5.0
SHAPES_MAX: Final = 200_000
"""Maximum number of different sets of bookies that are remembered for what a loss would take."""


@dataclass(slots=True)
class Shapes:
    """Sets of bookies that hold ledgers, with the number of ledgers that each of them holds."""

    ledgers: Counter[tuple[WriteSet, ...]] = field(default_factory=Counter)
    left_out: int = 0
    """Ledgers that are not counted, because there were too many different sets."""

    def add(self, ledger: LedgerMetadata) -> None:
        """Count one ledger."""
        shape = tuple(sorted({each.of_any_fragment for each in write_sets(ledger)}))
        if shape not in self.ledgers and len(self.ledgers) >= SHAPES_MAX:
            self.left_out += 1
        elif shape:
            self.ledgers[shape] += 1

    def losses(
        self, up: Collection[BookieId], in_limbo: Collection[BookieId] = ()
    ) -> Counter[Loss]:
        """Return the number of ledgers by what they would lack if only some bookies were up."""
        found = Counter[Loss]()
        for shape, count in self.ledgers.items():
            copies = fewest_copies_of(shape, up, in_limbo)
            loss = None if copies is None else loss_of(copies)
            if loss is not None:
                found[loss] += count
        return found


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Result of one check."""

    health: Health
    shapes: Shapes
    began_s: float
    """Time of the event loop at which the check began, in seconds."""
    ended_s: float


class Survey:
    """The last check of a cluster, from `run` until it is cancelled."""

    def __init__(
        self, cluster: Cluster, log: ServerLog, every_s: float, now: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._every_s = every_s
        self._now = now
        self._wanted = asyncio.Event()
        self.last: Surveyed | None = None
        """None until the first check has ended."""
        self.failure = ""
        """Why the last check failed; empty if it did not."""
        self.ledgers_read = 0
        """Number of ledgers that the running check has read."""

    async def run(self) -> None:
        """Check again and again until cancelled."""
        while True:
            self._wanted.clear()
            try:
                self.last = await self._check()
                self.failure = ""
                length_s = self.last.ended_s - self.last.began_s
                pause_s = max(self._every_s, REST * length_s)
            except (MetadataError, TimeoutError) as error:
                self.failure = str(error) or type(error).__name__
                self._log.warning("check of the cluster failed", reason=self.failure)
                pause_s = RETRY_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def ask(self) -> None:
        """Begin a check now instead of after the pause."""
        self._wanted.set()

    async def _check(self) -> Surveyed:
        began_s, shapes = self._now(), Shapes()
        self.ledgers_read = 0
        health = await check_health(self._cluster, self._each_ledger(shapes))
        return Surveyed(health, shapes, began_s, self._now())

    async def _each_ledger(self, shapes: Shapes) -> AsyncIterator[Read]:
        async for each in LedgerPass(self._cluster, on_read=self._count):
            if not isinstance(each[1], MetadataFormatError):
                shapes.add(each[1])
            yield each

    def _count(self, ledgers: int) -> None:
        self.ledgers_read += ledgers

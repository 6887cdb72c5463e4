"""Probes of registered bookies, from the machine of each process of repair.

A registration needs the metadata service alone, so a bookie that no client reaches looks healthy.
Repair runs beside each bookie: what it reaches, other bookies' machines reach.

Leaves what an operator sees of it to `quire.operate.reachability`.

Invariants: one process probes at most PROBED_MAX bookies; the choice differs between processes, so
each bookie is probed from about as many machines; one lost answer is no report.

Source: docs/repair.md, "Bookies that cannot be reached".
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final
from zlib import crc32

from ledger_client.bookies.pool import BookieCallError, BookiePool
from metadata.ids import BookieId
from metadata.registry.directory import BookieDirectory
from metadata.repair.workers import WorkerReport
from quire.server.server_log import ServerLog

PROBE_EVERY_S: Final = 20.0
PROBE_S: Final = 5.0
PROBED_MAX: Final = 20
FAILURES_MIN: Final = 2
"""Number of failures in a row after which a bookie is reported."""


def bookies_to_probe(prober: str, up: Collection[BookieId]) -> list[BookieId]:
    """Return the bookies that a process probes, sorted."""
    chosen = sorted(up, key=lambda bookie_id: crc32(f"{prober} {bookie_id}".encode()))
    return sorted(chosen[:PROBED_MAX])


class PeerProbes:
    """Probes of one process, from `run` until it is cancelled."""

    def __init__(
        self,
        prober: str,
        host: str,
        pool: BookiePool,
        directory: BookieDirectory,
        report: Callable[[WorkerReport], None],
        log: ServerLog,
    ) -> None:
        """`report` publishes what was found; `host` is the machine of this process."""
        self._prober = prober
        self._host = host
        self._pool = pool
        self._directory = directory
        self._report = report
        self._log = log
        self._failures: dict[BookieId, int] = {}

    async def run(self) -> None:
        """Probe again and again."""
        while True:
            await self.probe()
            await asyncio.sleep(PROBE_EVERY_S)

    async def probe(self) -> None:
        """Probe once, and report the bookies that did not answer several times."""
        wanted = bookies_to_probe(self._prober, self._directory.bookies)
        whys = dict(zip(wanted, await asyncio.gather(*map(self._ask, wanted)), strict=True))
        before = self._unreached
        up = self._directory.bookies  # one that left meanwhile is down
        self._failures = {
            bookie_id: self._failures.get(bookie_id, 0) + 1
            for bookie_id, why in whys.items()
            if why and bookie_id in up
        }
        for bookie_id in self._unreached:
            if bookie_id not in before:
                self._log.warning("bookie unreachable", bookie=bookie_id, reason=whys[bookie_id])
        for bookie_id in before:
            if whys.get(bookie_id) == "":
                self._log.info("bookie reachable again", bookie=bookie_id)
        self._report(WorkerReport(self._host, self._unreached))

    @property
    def _unreached(self) -> tuple[BookieId, ...]:
        return tuple(
            bookie_id for bookie_id, count in self._failures.items() if count >= FAILURES_MIN
        )

    async def _ask(self, bookie_id: BookieId) -> str:
        """Return why a bookie does not answer; empty if it does."""
        try:
            await self._pool.ping(bookie_id, timeout_s=PROBE_S)
        except BookieCallError as error:
            return str(error)
        return ""

"""Bursts: more unconfirmed entries, or larger ones, than the usual workload has.

A recovery reads 1,024 entries at a time and writes back spans of a megabyte. An answer to a read
ends early at its size limit. Only a burst makes a recovery, a copy or a reader reach these limits.

Leaves the choice of ledgers to `tests.simulation.writing`.

Invariant: a process that is killed right after a burst has sent no newer LAC, so that the recovery
has to find all of the burst.
Source: protocol rules 3.1, 7.3, 7.4, 8.4.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from ledger_client import LedgerError, LedgerWriter
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel

SMALL_COUNT: Final = (1_100, 2_300)
LARGE_COUNT: Final = (2, 4)
LARGE_BYTES: Final = (150_000, 900_000)
LARGE_SHARE: Final = 0.5
PUSH_COUNT: Final = 400
"""Entries appended in one loop iteration."""
KILLED_EARLY_SHARE: Final = 0.25
KILLED_SHARE: Final = 0.5
"""Share of the bursts after whose last confirmation the writer's process is killed."""
EARLY_S_MAX: Final = 0.02


class Burst:
    """One burst of a writer."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: LedgerModel,
        writer: LedgerWriter,
        rng: random.Random,
        watch: Callable[[int, "asyncio.Future[int]"], None],
    ) -> None:
        """`watch` receives the expected id and the future of each append when it is called."""
        self._cluster = cluster
        self._ledger = ledger
        self._writer = writer
        self._rng = rng
        self._watch = watch

    async def run(self) -> None:
        """Append the burst, and await it; the process may be killed before or after that."""
        rng = self._rng
        is_large = rng.random() < LARGE_SHARE
        count = rng.randint(*(LARGE_COUNT if is_large else SMALL_COUNT))
        self._cluster.model.note("burst", f"ledger {self._ledger.ledger_id}: {count} entries")
        killed = rng.random()
        if killed < KILLED_EARLY_SHARE:
            self._kill_after(rng.random() * EARLY_S_MAX)
        futures: list[asyncio.Future[int]] = []
        for number in range(count):
            if number and number % PUSH_COUNT == 0:
                await asyncio.sleep(0)
            try:
                futures.append(self._append(rng.randint(*LARGE_BYTES) if is_large else 0))
            except LedgerError:
                break  # the writer has failed, or the window is full
        await asyncio.gather(*futures, return_exceptions=True)
        if KILLED_EARLY_SHARE <= killed < KILLED_EARLY_SHARE + KILLED_SHARE:
            self._kill_after(0.0)
            await asyncio.sleep(EARLY_S_MAX)

    def _append(self, size: int) -> "asyncio.Future[int]":
        expected = self._writer.last_pushed + 1
        payload = b"<%d/%d>" % (self._ledger.ledger_id, expected) + self._rng.randbytes(size)
        self._ledger.payloads[expected] = payload
        future = self._writer.append_nowait(payload)
        self._watch(expected, future)
        return future

    def _kill_after(self, delay_s: float) -> None:
        """Kill the writer's process, from outside of it, and start it again."""
        cluster = self._cluster
        host = cluster.live_ledgers.get(self._writer.id)
        for node in cluster.clients:
            if node.host == host:
                cluster.loop.call_later(
                    delay_s, partial(node.kill, power_off=False), context=cluster.context
                )
                cluster.loop.call_later(1.0, node.start, context=cluster.context)

"""Random faults in the processes of a cluster: kills, pauses and orderly restarts.

Leaves the processes to `quire.local`, and the consequences to the other processes of a
campaign.

Invariants: no more than `down_max` bookies have a fault at a time, so there are always spares.
Every fault has ended when `settle` returns. The seed decides the plan, but not the time that
processes take.
"""

import asyncio
import math
import shutil
import time
from asyncio.subprocess import DEVNULL
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from metadata.store.embedded import EmbeddedZooKeeper
from quire.errors import LocalClusterError
from quire.local.local_bookie import LocalBookie
from tests.campaign.availability import ZOOKEEPER, FaultTime

PAUSE_S: Final = (0.02, 8.0)
FREEZE_S: Final = (0.01, 0.4)
DOWN_S_MEAN: Final = 0.8
DOWN_S_MAX: Final = 4.0
GAP_S: Final = (0.1, 1.5)
ZOOKEEPER_PAUSE_S: Final = (0.1, 3.0)
TWO_AT_ONCE: Final = 0.4
AIMED: Final = 0.8
"""Share of faults that hit bookies of an ensemble that is being written."""
SAME_KIND: Final = 0.4
STAGGER_S: Final = 0.3
"""Maximum delay of the second of two faults, unless both are of the same kind."""
ZOOKEEPER_SHARE: Final = 0.04
WRITER_SHARE: Final = 0.04
SLOWED_S: Final = (0.3, 1.0)
SYNC_DELAY_US: Final = 300_000
KINDS: Final = ("killed", "paused", "restarted", "frozen and killed", "slowed and killed")


@dataclass(frozen=True, slots=True)
class Targets:
    """Parts of a campaign that faults hit in addition to its cluster."""

    ensembles: Callable[[], Sequence[tuple[str, ...]]]
    """For each ledger that is being written, the ids of its bookies."""
    replace_writer: Callable[[], Awaitable[None]]
    """Kills the writer and starts another."""
    writer_pid: Callable[[], int]
    """Process id of the writer."""


class FaultInjector:
    """Injects the faults of one campaign."""

    def __init__(
        self,
        bookies: Sequence[LocalBookie],
        rng: Random,
        down_max: int,
        targets: Targets,
        *,
        zookeeper: EmbeddedZooKeeper | None = None,
        may_start_again: Callable[[float], bool] = lambda _: False,
        other_code: Path | None = None,
    ) -> None:
        """Without `zookeeper` only bookies and the writer have faults. `may_start_again` returns
        whether a bookie's start that began at that time may have failed without a fault of its own.
        With `other_code` half of the starts run the code in that directory.
        """
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.times: list[FaultTime] = []
        self._bookies = list(bookies)
        self._zookeeper = zookeeper
        self._may_start_again = may_start_again
        self._other_code = other_code
        self._rng = rng
        self._down_max = down_max
        self._targets = targets
        self._faulty: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False

    async def run(self) -> None:
        """Inject faults until `stop`; a fault that has begun continues until its end."""
        while not self._is_stopping:
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            self._faulty = {name: task for name, task in self._faulty.items() if not task.done()}
            self._record_dead()
            draw = self._rng.random()
            if draw < ZOOKEEPER_SHARE and self._zookeeper is not None:
                await self._pause_zookeeper(self._zookeeper)
            elif draw < ZOOKEEPER_SHARE + WRITER_SHARE:
                self.counts["writer killed"] += 1
                await self._targets.replace_writer()
            else:
                await self._inject_bookie_faults()

    def stop(self) -> None:
        """Start no more faults."""
        self._is_stopping = True

    async def settle(self) -> None:
        """Wait until every fault has ended."""
        await asyncio.gather(*self._faulty.values())
        self._faulty = {}
        self._record_dead()

    async def withdraw(self, bookie: LocalBookie) -> None:
        """Choose a bookie for no more faults; return once one that it has has ended."""
        self._bookies.remove(bookie)
        if bookie.name in self._faulty:
            await self._faulty[bookie.name]

    def admit(self, bookie: LocalBookie) -> None:
        """Choose this bookie too from now on."""
        self._bookies.append(bookie)

    @property
    def bookies(self) -> Sequence[LocalBookie]:
        """The bookies that faults may hit."""
        return self._bookies

    async def _inject_bookie_faults(self) -> None:
        """Inject a fault into one more bookie, or into two at the same moment."""
        count = 1
        if self._rng.random() < TWO_AT_ONCE:
            count = self._down_max
            await self.settle()
        if count + len(self._faulty) > self._down_max:
            return
        well = [bookie for bookie in self._bookies if bookie.name not in self._faulty]
        ensembles = self._targets.ensembles()
        if ensembles and self._rng.random() < AIMED:
            members = self._rng.choice(ensembles)
            well = [bookie for bookie in well if bookie.id in members]
        chosen = self._rng.sample(well, min(count, len(well)))
        kinds = [self._rng.choice(KINDS) for _ in chosen]
        delay_s = self._rng.uniform(0, STAGGER_S)
        if self._rng.random() < SAME_KIND:
            kinds, delay_s = kinds[:1] * len(chosen), 0.0
        self.counts["two at once"] += len(chosen) > 1
        for number, (bookie, kind) in enumerate(zip(chosen, kinds, strict=True)):
            self.counts[kind] += 1
            fault = self._guarded(kind, bookie, number * delay_s)
            self._faulty[bookie.name] = asyncio.create_task(fault)

    async def _guarded(self, kind: str, bookie: LocalBookie, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        part, began = bookie.id, time.time()
        try:
            match kind:
                case "killed":
                    await self._kill(bookie)
                case "paused":
                    await self._pause(bookie)
                case "restarted":
                    await self._restart(bookie)
                case "frozen and killed":
                    await self._freeze_and_kill(bookie)
                case _:
                    await self._slow_and_kill(bookie)
        except LocalClusterError as error:
            self.complaints.append(str(error))
        finally:
            self.times.append(FaultTime(part, began, time.time()))

    async def _freeze_and_kill(self, bookie: LocalBookie) -> None:
        """Kill a paused bookie: data in its sockets, sent but not read, is lost."""
        frozen_s = self._rng.uniform(*FREEZE_S)
        bookie.pause()
        await asyncio.sleep(frozen_s)
        await self._kill(bookie)

    async def _slow_and_kill(self, bookie: LocalBookie) -> None:
        """Kill a bookie with slow syncs: much data that it accepted and did not sync is lost.

        Where processes cannot be traced, only kill it.
        """
        slowed_s = self._rng.uniform(*SLOWED_S)
        strace = shutil.which("strace")
        if strace is None:
            await self._kill(bookie)
            return
        tracer = await asyncio.create_subprocess_exec(
            *(strace, "-f", "-o", "/dev/null", "-p", str(bookie.pid), "-e", "trace=fdatasync"),
            *("-e", f"inject=fdatasync:delay_enter={SYNC_DELAY_US}"),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        try:
            await asyncio.sleep(slowed_s)
            await self._kill(bookie)
        finally:
            if tracer.returncode is None:
                tracer.kill()
            await tracer.wait()

    async def _kill(self, bookie: LocalBookie) -> None:
        down_s = min(DOWN_S_MAX, self._rng.expovariate(1 / DOWN_S_MEAN))
        bookie.kill()
        await asyncio.sleep(down_s)
        await self._start(bookie)

    async def _restart(self, bookie: LocalBookie) -> None:
        down_s = min(DOWN_S_MAX, self._rng.expovariate(1 / DOWN_S_MEAN))
        await bookie.stop()
        await asyncio.sleep(down_s)
        await self._start(bookie)

    async def _start(self, bookie: LocalBookie) -> None:
        """Start a bookie, again and again as a supervisor does, while the reason is known."""
        while True:
            began = time.time()
            if self._other_code is not None:
                bookie.code_dir = self._rng.choice((None, self._other_code))
                self.counts["version changed"] += 1
            try:
                await bookie.restart()
            except LocalClusterError:
                if not self._may_start_again(began):
                    raise
                self.counts["started again"] += 1
            else:
                return

    async def _pause(self, bookie: LocalBookie) -> None:
        low, high = map(math.log, PAUSE_S)
        paused_s = math.exp(self._rng.uniform(low, high))
        bookie.pause()
        await asyncio.sleep(paused_s)
        bookie.resume()

    async def _pause_zookeeper(self, zookeeper: EmbeddedZooKeeper) -> None:
        self.counts["zookeeper paused"] += 1
        paused_s = self._rng.uniform(*ZOOKEEPER_PAUSE_S)
        began = time.time()
        zookeeper.pause()
        await asyncio.sleep(paused_s)
        zookeeper.resume()
        self.times.append(FaultTime(ZOOKEEPER, began, time.time()))

    def _record_dead(self) -> None:
        """Record each bookie that ended without a fault."""
        for bookie in self._bookies:
            is_faulty = bookie.name in self._faulty
            if not is_faulty and not bookie.is_running and bookie.name not in str(self.complaints):
                self.complaints.append(f"{bookie.name} ended by itself:\n{bookie.log_tail()}")

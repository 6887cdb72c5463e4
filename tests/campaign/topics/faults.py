"""Random faults in brokers, bookies and ZooKeeper.

Leaves the processes to `quire.local_cluster`, and the consequences to the other processes of a
campaign.

Invariants: no more than `brokers_down_max` brokers and `bookies_down_max` bookies have a fault at a
time. Every fault has ended when `settle` returns. The seed decides the plan, but not the time that
processes take.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from metadata.errors import MetadataError
from quire.errors import LocalClusterError
from quire.local_cluster import LocalCluster

PAUSE_S: Final = (0.02, 12.0)
"""Longer than the session timeout too: other brokers have then taken over before it resumes."""
FREEZE_S: Final = (0.01, 0.4)
DOWN_S_MEAN: Final = 2.0
DOWN_S_MAX: Final = 15.0
GAP_S: Final = (0.3, 4.0)
SEVERAL_AT_ONCE: Final = 0.3
TOGETHER: Final = 0.5
"""Share of several faults that happen together and in one way; the others happen one by one."""
STAGGER_S: Final = 0.3
ZOOKEEPER_SHARE: Final = 0.08
ZOOKEEPER_PAUSE_S: Final = (0.1, 9.0)
CLIENT_SHARE: Final = 0.05
BROKER_SHARE: Final = 0.5
KINDS: Final = ("killed", "killed", "paused", "paused", "restarted", "frozen and killed")
ZOOKEEPER_KINDS: Final = ("paused", "paused", "killed")


class Server(Protocol):
    """Common interface of a broker and a bookie."""

    name: str

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        ...

    def kill(self) -> None:
        """End it with kill -9."""

    def pause(self) -> None:
        """Stop it with SIGSTOP."""

    def resume(self) -> None:
        """Resume it with SIGCONT."""

    async def stop(self) -> None:
        """End it in order."""

    async def start(self) -> None:
        """Start it."""

    async def restart(self) -> None:
        """Start it again."""

    def log_tail(self) -> str:
        """Return the end of its log."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Maximum numbers of servers with a fault at a time, and whether ZooKeeper has faults."""

    brokers_down_max: int
    bookies_down_max: int
    has_zookeeper_faults: bool = True


class FaultInjector:
    """Injects the faults of one campaign."""

    def __init__(
        self,
        cluster: LocalCluster,
        rng: Random,
        bounds: Bounds,
        replace_client: Callable[[Random], Awaitable[None]],
        say: Callable[[str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._cluster = cluster
        self._rng = rng
        self._bounds = bounds
        self._replace_client = replace_client
        self._say = say
        self._faulty: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False

    async def run(self) -> None:
        """Inject faults until `stop`; a fault that has begun continues until its end."""
        while not self._is_stopping:
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            self._faulty = {name: task for name, task in self._faulty.items() if not task.done()}
            self._record_dead()
            draw = self._rng.random()
            if draw < ZOOKEEPER_SHARE:
                if self._bounds.has_zookeeper_faults:
                    self._inject_zookeeper_fault()
            elif draw < ZOOKEEPER_SHARE + CLIENT_SHARE:
                self.counts["client killed"] += 1
                await self._replace_client(self._rng)
            else:
                self._inject_server_faults()

    def stop(self) -> None:
        """Start no more faults."""
        self._is_stopping = True

    async def settle(self) -> None:
        """Wait until every fault has ended."""
        await asyncio.gather(*self._faulty.values())
        self._faulty = {}
        self._record_dead()

    def _inject_server_faults(self) -> None:
        """Inject a fault into one server, or into several at nearly the same moment."""
        count = 2 + (self._rng.random() < 0.3) if self._rng.random() < SEVERAL_AT_ONCE else 1
        begun = 0
        is_together, one_kind = self._rng.random() < TOGETHER, self._rng.choice(KINDS)
        for number in range(count):
            delay_s = self._rng.uniform(0, STAGGER_S) if number and not is_together else 0.0
            is_broker = self._rng.random() < BROKER_SHARE
            kind = one_kind if is_together else self._rng.choice(KINDS)
            server = self._choose(is_broker=is_broker)
            if server is not None:
                begun += 1
                self.counts[f"{'broker' if is_broker else 'bookie'} {kind}"] += 1
                rng = Random(self._rng.random())
                fault = self._fault(kind, server, delay_s, rng)
                self._faulty[server.name] = asyncio.create_task(fault)
        if begun > 1:
            self.counts["several together" if is_together else "several at once"] += 1

    def _choose(self, *, is_broker: bool) -> Server | None:
        """Return a healthy server, unless the maximum number already has a fault."""
        servers: Sequence[Server] = self._cluster.brokers if is_broker else self._cluster.bookies
        bounds = self._bounds
        down_max = bounds.brokers_down_max if is_broker else bounds.bookies_down_max
        well = [each for each in servers if each.name not in self._faulty]
        # drawn in any case: the seed alone decides the plan
        chosen = self._rng.choice(well) if well else None
        return chosen if len(servers) - len(well) < down_max else None

    async def _fault(self, kind: str, server: Server, delay_s: float, rng: Random) -> None:
        await asyncio.sleep(delay_s)
        self._say(f"{server.name} is {kind}")
        down_s = min(DOWN_S_MAX, rng.expovariate(1 / DOWN_S_MEAN))
        try:
            match kind:
                case "killed":
                    server.kill()
                case "paused":
                    server.pause()
                    await asyncio.sleep(_log_uniform(rng, PAUSE_S))
                    server.resume()
                    self._say(f"{server.name} goes on")
                    return
                case "restarted":
                    await server.stop()
                case _:
                    server.pause()
                    await asyncio.sleep(rng.uniform(*FREEZE_S))
                    server.kill()
            await asyncio.sleep(down_s)
            await server.restart()
            self._say(f"{server.name} is up again")
        except LocalClusterError as error:
            self.complaints.append(str(error))

    def _inject_zookeeper_fault(self) -> None:
        kind = self._rng.choice(ZOOKEEPER_KINDS)
        seconds = _log_uniform(self._rng, ZOOKEEPER_PAUSE_S)
        if "zookeeper" in self._faulty:
            return
        self.counts[f"zookeeper {kind}"] += 1
        self._faulty["zookeeper"] = asyncio.create_task(self._zookeeper_fault(kind, seconds))

    async def _zookeeper_fault(self, kind: str, seconds: float) -> None:
        zookeeper = self._cluster.zookeeper
        self._say(f"ZooKeeper is {kind}")
        try:
            if kind == "paused":
                zookeeper.pause()
                await asyncio.sleep(seconds)
                zookeeper.resume()
            else:
                zookeeper.kill()
                await asyncio.sleep(seconds)
                await zookeeper.start()
            self._say("ZooKeeper is well")
        except MetadataError as error:
            self.complaints.append(f"ZooKeeper: {error}")

    def _record_dead(self) -> None:
        """Record each server that ended without a fault."""
        servers: list[Server] = [*self._cluster.brokers]
        if self._bounds.bookies_down_max:  # or else others may end them
            servers += self._cluster.bookies
        for server in servers:
            is_faulty = server.name in self._faulty
            if not is_faulty and not server.is_running and server.name not in str(self.complaints):
                self.complaints.append(f"{server.name} ended by itself:\n{server.log_tail()}")


def _log_uniform(rng: Random, bounds: tuple[float, float]) -> float:
    low, high = map(math.log, bounds)
    return math.exp(rng.uniform(low, high))

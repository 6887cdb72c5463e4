"""Random faults in the processes of a cluster: kills, pauses and orderly restarts.

Leaves the processes to `quire.local`, and the consequences to the other processes of a
campaign.

Invariants: no more servers of a group have a fault at a time than the group says, so there are
always spares. Every fault has ended when `settle` returns. The seed decides the plan, but not the
time that processes take.
"""

import asyncio
import math
import shutil
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from metadata.errors import MetadataError
from metadata.store.embedded import EmbeddedZooKeeper
from quire.errors import LocalClusterError
from quire.local.local_server import LocalBookie, LocalBroker
from tests.campaign.availability import ZOOKEEPER, FaultTime
from tests.campaign.injecting import FaultLog

FREEZE_S: Final = (0.01, 0.4)
SEVERAL_AT_ONCE: Final = 0.4
TOGETHER: Final = 0.5
"""Share of several faults that happen together and in one way; the others happen one by one."""
STAGGER_S: Final = 0.3
AIMED: Final = 0.8
"""Share of faults that hit bookies of an ensemble that is being written."""
CLIENT_SHARE: Final = 0.05
SLOWED_S: Final = (0.3, 1.0)
SYNC_DELAY_US: Final = 300_000

Server = LocalBookie | LocalBroker


@dataclass(frozen=True, slots=True)
class Pace:
    """Faults of one kind of campaign, and their times in seconds."""

    kinds: tuple[str, ...]
    zookeeper_kinds: tuple[str, ...]
    zookeeper_share: float
    gap_s: tuple[float, float]
    pause_s: tuple[float, float]
    zookeeper_s: tuple[float, float]
    """Time that ZooKeeper is away."""
    down_s_mean: float
    down_s_max: float
    settles_first: bool
    """Whether faults of several servers wait until all earlier faults have ended."""


OF_LEDGERS: Final = Pace(
    kinds=("killed", "paused", "restarted", "frozen and killed", "slowed and killed"),
    zookeeper_kinds=("paused",),
    zookeeper_share=0.04,
    gap_s=(0.1, 1.5),
    pause_s=(0.02, 8.0),
    zookeeper_s=(0.1, 3.0),
    down_s_mean=0.8,
    down_s_max=4.0,
    settles_first=True,
)
OF_TOPICS: Final = Pace(
    kinds=("killed", "killed", "paused", "paused", "restarted", "frozen and killed"),
    zookeeper_kinds=("paused", "paused", "killed"),
    zookeeper_share=0.08,
    gap_s=(0.3, 4.0),
    pause_s=(0.02, 12.0),
    zookeeper_s=(0.1, 9.0),
    down_s_mean=2.0,
    down_s_max=15.0,
    settles_first=False,
)
"""Pauses are longer than the session timeout too: other brokers have then taken over before the
broker resumes.
"""


@dataclass(frozen=True, slots=True)
class Group:
    """Servers of one kind, of which at most `down_max` have a fault at a time."""

    noun: str
    """Start of their names."""
    servers: Sequence[Server]
    """The servers that faults may hit; its owner may change it."""
    down_max: int
    other_code: Path | None = None
    """Directory whose code half of the starts run; None: all run this one."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Parts of a campaign that faults hit in addition to its cluster."""

    replace_client: Callable[[], Awaitable[None]]
    """Kills a client and starts another."""
    ensembles: Callable[[], Sequence[tuple[str, ...]]] = lambda: ()
    """For each ledger that is being written, the ids of its bookies."""
    client_pids: Callable[[], Sequence[int]] = lambda: ()
    """Process ids of clients whose connections may be hit."""

    def aim(self, rng: Random) -> tuple[str, ...]:
        """Return the ids of the bookies to choose from; empty for all."""
        ensembles = self.ensembles()
        return rng.choice(ensembles) if ensembles and rng.random() < AIMED else ()


class FaultInjector:
    """Injects the faults of one campaign."""

    def __init__(
        self,
        groups: Sequence[Group],
        rng: Random,
        targets: Targets,
        pace: Pace = OF_LEDGERS,
        *,
        zookeeper: EmbeddedZooKeeper | None = None,
        may_start_again: Callable[[float], bool] = lambda _: False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Without `zookeeper` only servers and clients have faults. `may_start_again` returns
        whether a start that began at that time may have failed without a fault of its own.
        """
        self.log = FaultLog(say)
        self._groups = groups
        self._rng = rng
        self._targets = targets
        self._pace = pace
        self._zookeeper = zookeeper
        self._may_start_again = may_start_again
        self._faulty: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Inject faults until the log's `stop`; a fault that has begun continues until its end."""
        zookeeper_share = self._pace.zookeeper_share
        while not await self.log.stops_within(self._rng.uniform(*self._pace.gap_s)):
            self._faulty = {name: task for name, task in self._faulty.items() if not task.done()}
            self._record_dead()
            draw = self._rng.random()
            if draw < zookeeper_share and self._zookeeper is not None:
                self._hit_zookeeper(self._zookeeper)
            elif draw < zookeeper_share + CLIENT_SHARE:
                self.log.counts["client killed"] += 1
                await self._targets.replace_client()
            else:
                await self._hit_servers()

    async def settle(self) -> None:
        """Wait until every fault has ended."""
        await asyncio.gather(*self._faulty.values())
        self._faulty = {}
        self._record_dead()

    async def end_of_fault(self, server: Server) -> None:
        """Wait until a server that is in no group any more has no fault."""
        if server.name in self._faulty:
            await self._faulty[server.name]

    async def _hit_servers(self) -> None:
        """Hit one server, or several at nearly the same moment."""
        count = 1
        if self._rng.random() < SEVERAL_AT_ONCE:
            count = self._rng.randint(2, max(2, sum(each.down_max for each in self._groups)))
            if self._pace.settles_first:
                await self.settle()
        is_together = self._rng.random() < TOGETHER
        one_kind, ensemble = self._rng.choice(self._pace.kinds), self._targets.aim(self._rng)
        begun = 0
        for number in range(count):
            delay_s = self._rng.uniform(0, STAGGER_S) if number and not is_together else 0.0
            kind = one_kind if is_together else self._rng.choice(self._pace.kinds)
            group = self._rng.choice(self._groups)
            server = self._choose(group, ensemble)
            if server is not None:
                begun += 1
                self.log.counts[f"{group.noun} {kind}"] += 1
                fault = self._fault(kind, server, group, delay_s, Random(self._rng.random()))
                self._faulty[server.name] = asyncio.create_task(fault)
        if begun > 1:
            self.log.counts["several together" if is_together else "several at once"] += 1

    def _choose(self, group: Group, ensemble: tuple[str, ...]) -> Server | None:
        """Return a healthy server, unless the maximum number already has a fault."""
        well = [server for server in group.servers if server.name not in self._faulty]
        aimed = [each for each in well if not ensemble or each.id in ensemble]
        # drawn in any case: the seed alone decides the plan
        chosen = self._rng.choice(aimed) if aimed else None
        down = sum(name.startswith(group.noun) for name in self._faulty)  # also servers withdrawn
        return chosen if down < group.down_max else None

    async def _fault(
        self, kind: str, server: Server, group: Group, delay_s: float, rng: Random
    ) -> None:
        await asyncio.sleep(delay_s)
        self.log.say(f"{server.name} is {kind}")
        part, began = str(server.id), time.time()
        try:
            await self._hit(kind, server, rng)
            if kind != "paused":
                pace = self._pace
                await asyncio.sleep(min(pace.down_s_max, rng.expovariate(1 / pace.down_s_mean)))
                await self._start(server, group.other_code, rng)
            self.log.say(f"{server.name} is well")
        except LocalClusterError as error:
            self.log.complaints.append(str(error))
        finally:
            self.log.times.append(FaultTime(part, began, time.time()))

    async def _hit(self, kind: str, server: Server, rng: Random) -> None:
        match kind:
            case "killed":
                server.kill()
            case "paused":
                server.pause()
                await asyncio.sleep(_log_uniform(rng, self._pace.pause_s))
                server.resume()
            case "restarted":
                await server.stop()
            case "frozen and killed":  # data in its sockets, sent but not read, is lost
                server.pause()
                await asyncio.sleep(rng.uniform(*FREEZE_S))
                server.kill()
            case _:  # much data that it accepted and did not sync is lost
                async with _slow_syncs(server.pid):
                    await asyncio.sleep(rng.uniform(*SLOWED_S))
                    server.kill()

    async def _start(self, server: Server, other_code: Path | None, rng: Random) -> None:
        """Start a server, again and again as a supervisor does, while the reason is known."""
        while True:
            began = time.time()
            if other_code is not None:
                server.code_dir = rng.choice((None, other_code))
                self.log.counts["version changed"] += 1
            try:
                await server.restart()
            except LocalClusterError:
                if not self._may_start_again(began):
                    raise
                self.log.counts["started again"] += 1
            else:
                return

    def _hit_zookeeper(self, zookeeper: EmbeddedZooKeeper) -> None:
        kind = self._rng.choice(self._pace.zookeeper_kinds)
        seconds = _log_uniform(self._rng, self._pace.zookeeper_s)
        if ZOOKEEPER not in self._faulty:
            self.log.counts[f"zookeeper {kind}"] += 1
            fault = self._zookeeper_fault(zookeeper, kind, seconds)
            self._faulty[ZOOKEEPER] = asyncio.create_task(fault)

    async def _zookeeper_fault(
        self, zookeeper: EmbeddedZooKeeper, kind: str, seconds: float
    ) -> None:
        self.log.say(f"ZooKeeper is {kind}")
        began = time.time()
        try:
            if kind == "paused":
                zookeeper.pause()
                await asyncio.sleep(seconds)
                zookeeper.resume()
            else:
                zookeeper.kill()
                await asyncio.sleep(seconds)
                await zookeeper.start()
            self.log.say("ZooKeeper is well")
        except MetadataError as error:
            self.log.complaints.append(f"ZooKeeper: {error}")
        finally:
            self.log.times.append(FaultTime(ZOOKEEPER, began, time.time()))

    def _record_dead(self) -> None:
        """Record each server that ended without a fault."""
        complaints = self.log.complaints
        for server in [each for group in self._groups for each in group.servers]:
            is_faulty = server.name in self._faulty
            if not is_faulty and not server.is_running and server.name not in str(complaints):
                complaints.append(f"{server.name} ended by itself:\n{server.log_tail()}")


def _log_uniform(rng: Random, bounds: tuple[float, float]) -> float:
    low, high = map(math.log, bounds)
    return math.exp(rng.uniform(low, high))


@asynccontextmanager
async def _slow_syncs(pid: int) -> AsyncIterator[None]:
    """Delay the syncs of a process during the block, where processes can be traced."""
    strace = shutil.which("strace")
    if strace is None:
        yield
        return
    tracer = await asyncio.create_subprocess_exec(
        *(strace, "-f", "-o", "/dev/null", "-p", str(pid), "-e", "trace=fdatasync"),
        *("-e", f"inject=fdatasync:delay_enter={SYNC_DELAY_US}"),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        yield
    finally:
        if tracer.returncode is None:
            tracer.kill()
        await tracer.wait()

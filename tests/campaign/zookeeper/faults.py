"""Random faults in the servers of a ZooKeeper ensemble: kills and pauses of the leader, of a
follower, of the server of one client, and of all servers but one.

Leaves the servers to `tests.support.metadata.zookeeper_ensemble`, and faults of bookies and of the
writer to `tests.campaign.faults`, which has them at the same time.

Invariants: the servers are whole before each fault, so a fault of one server leaves a quorum.
The times in the log are those of faults of bookies, and those without a quorum: a fault of one
server explains no error. Every kind of fault occurs once before any occurs again.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from metadata.store.interface import SESSION_TIMEOUT_S
from tests.campaign.availability import ZOOKEEPER, FaultTime
from tests.campaign.faults import FaultInjector
from tests.campaign.zookeeper.judge import SETTLED_S
from tests.campaign.zookeeper.links import connected_port
from tests.support.metadata.zookeeper_ensemble import Member, ZooKeeperEnsemble

GAP_S: Final = (0.5, 3.0)
DOWN_S: Final = (0.2, 5.0)
SHORT_PAUSE_S: Final = (0.2, 3.0)
LONG_PAUSE_S: Final = (SESSION_TIMEOUT_S, SESSION_TIMEOUT_S + 4.0)
"""Longer than a session: its client must have found another server before."""
AWAY_S: Final = (SESSION_TIMEOUT_S + 1.0, SESSION_TIMEOUT_S + 4.0)
LED_S_MAX: Final = 10.0
"""Maximum time until the other servers have a leader, after the fault of a leader."""
WHOLE_S_MAX: Final = 45.0
"""Maximum time until all servers serve, after the end of a fault."""
FIRST: Final = ("the leader paused", "a client's server paused", "the leader killed")
KINDS: Final = (
    *FIRST,
    "a client's server killed",
    "a follower paused",
    "a follower killed",
    "all but one paused",
    "all but one killed",
)


class Outages:
    """Times without a quorum of servers."""

    def __init__(self) -> None:
        self.times: list[FaultTime] = []
        self._began: float | None = None

    def begin(self) -> None:
        """Note that a quorum is about to be missing."""
        self._began = time.time()

    def end(self) -> None:
        """Note that all servers serve again."""
        assert self._began is not None, "it has begun"
        self.times.append(FaultTime(ZOOKEEPER, self._began, time.time()))
        self._began = None

    def any_since(self, at: float) -> bool:
        """Return whether a quorum was missing at some moment since then, clients' time to connect
        again included.
        """
        if self._began is not None:
            return True
        return any(fault_time.ended + SETTLED_S >= at for fault_time in self.times)


class EnsembleFaults:
    """Injects the faults of one campaign."""

    def __init__(
        self,
        ensemble: ZooKeeperEnsemble,
        bookies: FaultInjector,
        rng: Random,
        clients: Callable[[], Sequence[int]],
        outages: Outages,
    ) -> None:
        """`clients` returns the process ids whose servers are hit."""
        self.log = bookies.log
        self.longest_election_s = 0.0
        self._outages = outages
        self._ensemble = ensemble
        self._bookies = bookies
        self._rng = rng
        self._clients = clients
        self._left: list[str] = []

    async def run(self) -> None:
        """Inject faults until the log's `stop`; a fault that has begun continues until its end."""
        await asyncio.gather(self._bookies.run(), self._hit_servers())
        self.log.times += self._outages.times

    async def settle(self) -> None:
        """Wait until every fault has ended."""
        await self._bookies.settle()

    async def _hit_servers(self) -> None:
        self._left = list(FIRST)  # so that a short campaign has them
        while not await self.log.stops_within(self._rng.uniform(*GAP_S)):
            if not self._left:
                self._left = self._rng.sample(KINDS, len(KINDS))
            kind = self._left.pop(0)
            self.log.counts[kind] += 1
            leader = await self._ensemble.leader()
            await self._hit(kind, leader)
            await self._expect_whole(kind)

    async def _hit(self, kind: str, leader: Member) -> None:
        followers = self._ensemble.others(leader)
        match kind:
            case "the leader paused":
                await self._pause(leader, is_leader=True)
            case "the leader killed":
                await self._kill(leader, is_leader=True)
            case "a follower paused":
                await self._pause(self._rng.choice(followers), is_leader=False)
            case "a follower killed":
                await self._kill(self._rng.choice(followers), is_leader=False)
            case "a client's server paused":
                member = self._server_of_client()
                await self._pause(member, is_leader=member is leader, is_long=True)
            case "a client's server killed":
                member = self._server_of_client()
                await self._kill(member, is_leader=member is leader)
            case "all but one paused":
                await self._pause_most()
            case _:
                await self._kill_most()

    def _server_of_client(self) -> Member:
        """Return the server of one of the clients, or any server if none is connected now."""
        members = {member.client_port: member for member in self._ensemble.members}
        port = connected_port(self._rng.choice(self._clients()), members)
        return self._rng.choice(self._ensemble.members) if port is None else members[port]

    async def _pause(self, member: Member, *, is_leader: bool, is_long: bool = False) -> None:
        is_long = is_long or self._rng.random() < 0.5
        paused_s = self._rng.uniform(*(LONG_PAUSE_S if is_long else SHORT_PAUSE_S))
        member.pause()
        try:
            waiting = asyncio.create_task(asyncio.sleep(paused_s))
            if is_leader and is_long:
                await self._expect_leader(self._ensemble.others(member))
            await waiting
        finally:
            member.resume()

    async def _kill(self, member: Member, *, is_leader: bool) -> None:
        down_s = self._rng.uniform(*DOWN_S)
        member.kill()
        if is_leader:
            await self._expect_leader(self._ensemble.others(member))
        await asyncio.sleep(down_s)
        self._ensemble.start(member)

    async def _pause_most(self) -> None:
        most = self._rng.sample(self._ensemble.members, len(self._ensemble.members) - 1)
        self._outages.begin()
        for member in most:
            member.pause()
        try:
            await asyncio.sleep(self._rng.uniform(*AWAY_S))
        finally:
            for member in most:
                member.resume()
        await self._expect_whole("all but one paused")
        self._outages.end()

    async def _kill_most(self) -> None:
        most = self._rng.sample(self._ensemble.members, len(self._ensemble.members) - 1)
        self._outages.begin()
        for member in most:
            member.kill()
        await asyncio.sleep(self._rng.uniform(*AWAY_S))
        for member in most:
            self._ensemble.start(member)
        await self._expect_whole("all but one killed")
        self._outages.end()

    async def _expect_leader(self, others: list[Member]) -> None:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(LED_S_MAX):
                await self._ensemble.leader(among=others)
        except TimeoutError:
            text = f"the other servers had no leader within {LED_S_MAX:.0f} s"
            self.log.complaints.append(text)
            return
        taken_s = asyncio.get_running_loop().time() - began
        self.longest_election_s = max(self.longest_election_s, round(taken_s, 2))

    async def _expect_whole(self, kind: str) -> None:
        """Wait until all servers serve; start a server again that has ended, as a supervisor
        would: another process may have taken its port for a moment.
        """
        try:
            async with asyncio.timeout(WHOLE_S_MAX):
                while True:
                    for member in self._ensemble.members:
                        if not member.is_running:
                            member.kill()
                            self._ensemble.start(member)
                    try:
                        async with asyncio.timeout(5.0):
                            await self._ensemble.leader()
                    except TimeoutError:
                        continue
                    return
        except TimeoutError:
            logs = "\n".join(member.log_tail() for member in self._ensemble.members)
            text = f"not all servers served {WHOLE_S_MAX:.0f} s after the end of: {kind}\n{logs}"
            self.log.complaints.append(text)

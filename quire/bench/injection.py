"""Injector of a scenario's faults into a running cluster; records when each one struck.

Leaves the choice and the times of faults to `quire.bench.scenarios`.

Invariants: after `heal` no process is stopped and no byte is held back; a killed process stays
down unless a step starts it again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from metadata.cancelling import cancel_and_wait
from quire.bench import faults as f
from quire.bench.delaying_proxy import DelayingProxy
from quire.bench.scenarios import Step
from quire.errors import LocalClusterError
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster

BEFORE_KILL_S: Final = 0.6
"""Time to read a bookie's counters before it is killed, in seconds."""


@dataclass(frozen=True, slots=True)
class InjectionMark:
    """Something done to the cluster; `at` is the time of the machine's monotonic clock."""

    at: float
    label: str


class Injector:
    """Injector of the faults of one run."""

    def __init__(
        self,
        cluster: LocalCluster,
        members: Sequence[LocalBookie],
        proxies: Mapping[str, DelayingProxy],
        kill_writer: Callable[[], None],
    ) -> None:
        self.marks: list[InjectionMark] = []
        self._cluster = cluster
        self._members = members
        self._proxies = proxies
        self._kill_writer = kill_writer
        self._slowing: list[asyncio.Task[None]] = []
        self._starting: list[asyncio.Task[None]] = []

    async def run(
        self, steps: Sequence[Step], start: float, before: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Perform every step at its time after `start`; call `before` ahead of the kill of a
        bookie.
        """
        for step in steps:
            if isinstance(step.fault, f.KillBookie):
                await asyncio.sleep(max(0.0, start + step.at_s - monotonic() - BEFORE_KILL_S))
                await before()
            await asyncio.sleep(max(0.0, start + step.at_s - monotonic()))
            await self._perform(step.fault)
        await asyncio.gather(*self._starting)

    async def heal(self) -> None:
        """Resume everything that still runs, at full speed."""
        await self._end_slowness()
        for bookie in self._members:
            if bookie.is_running:
                bookie.resume()

    async def _perform(self, fault: f.Fault) -> None:
        self.marks.append(InjectionMark(monotonic(), f.describe(fault)))
        match fault:
            case f.PauseBookie(member):
                self._members[member].pause()
            case f.ResumeBookie(member):
                self._members[member].resume()
            case f.KillBookie(member):
                self._members[member].kill()
            case f.RestartBookie(member):
                self._starting.append(asyncio.ensure_future(self._start_again(member)))
            case f.SlowBookie(member, stopped_s, period_s):
                bookie = self._members[member]
                self._slow(bookie.pause, bookie.resume, stopped_s, period_s)
            case f.DelayNetwork(member, delay_s):
                self._proxies[self._members[member].address].delay_s = delay_s
            case f.SlowZooKeeper(stopped_s, period_s):
                server = self._cluster.zookeeper
                self._slow(server.pause, server.resume, stopped_s, period_s)
            case f.PauseZooKeeper():
                self._cluster.zookeeper.pause()
            case f.HealSlowness():
                await self._end_slowness()
            case f.KillWriter():
                self._kill_writer()

    async def _start_again(self, member: int) -> None:
        await self._members[member].restart()
        self.marks.append(InjectionMark(monotonic(), f"bookie {member + 1} serves again"))

    def _slow(
        self,
        stop: Callable[[], None],
        resume: Callable[[], None],
        stopped_s: float,
        period_s: float,
    ) -> None:
        self._slowing.append(asyncio.ensure_future(_alternate(stop, resume, stopped_s, period_s)))

    async def _end_slowness(self) -> None:
        await cancel_and_wait(*self._slowing)
        self._slowing.clear()
        for proxy in self._proxies.values():
            proxy.delay_s = 0.0
        self._cluster.zookeeper.resume()


async def _alternate(
    stop: Callable[[], None], resume: Callable[[], None], stopped_s: float, period_s: float
) -> None:
    """Stop and resume a process until cancelled; it runs at the end."""
    try:
        while True:
            begun = monotonic()
            stop()
            await asyncio.sleep(stopped_s)
            resume()
            await asyncio.sleep(max(0.0, begun + period_s - monotonic()))
    finally:
        with contextlib.suppress(LocalClusterError, AssertionError):  # it has ended
            resume()

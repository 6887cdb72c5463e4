"""The injector performs a scenario's steps, and leaves no process stopped."""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, cast

from quire.bench import faults as f
from quire.bench.injection import DelayingProxy, Injector
from quire.bench.scenarios import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quire.local.local_server import LocalBookie
    from quire.local_cluster import LocalCluster


class FakeProcess:
    """A bookie or ZooKeeper that records the calls."""

    def __init__(self, name: str) -> None:
        self.address = name
        self.done: list[str] = []
        self.is_running = True
        self.paused = asyncio.Event()
        self.resumed = asyncio.Event()

    def pause(self) -> None:
        self.done.append("pause")
        self.paused.set()

    def resume(self) -> None:
        self.done.append("resume")
        self.resumed.set()

    def kill(self) -> None:
        self.done.append("kill")
        self.is_running = False

    async def restart(self) -> None:
        self.done.append("restart")
        self.is_running = True


class FakeCluster:
    """A cluster with a ZooKeeper."""

    def __init__(self) -> None:
        self.zookeeper = FakeProcess("zookeeper")


class Scene:
    """An injector over two bookies, and the recorded calls."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.bookies = [FakeProcess("one"), FakeProcess("two")]
        self.proxies = {bookie.address: DelayingProxy("127.0.0.1:1") for bookie in self.bookies}
        self.writer_kills = 0
        self.readings = 0
        self.injector = Injector(
            cast("LocalCluster", self.cluster),
            [cast("LocalBookie", bookie) for bookie in self.bookies],
            self.proxies,
            self._kill_writer,
        )

    def _kill_writer(self) -> None:
        self.writer_kills += 1

    async def _read(self) -> None:
        self.readings += 1

    async def run(self, *faults: f.Fault) -> list[str]:
        """Perform faults at once; return the labels of the marks."""
        steps: Sequence[Step] = [Step(0.0, fault) for fault in faults]
        await self.injector.run(steps, monotonic(), self._read)
        return [mark.label for mark in self.injector.marks]


async def test_each_fault_strikes_its_target() -> None:
    scene = Scene()
    told = await scene.run(
        f.PauseBookie(0), f.ResumeBookie(0), f.KillBookie(1), f.PauseZooKeeper(), f.KillWriter()
    )
    assert (scene.bookies[0].done, scene.bookies[1].done) == (["pause", "resume"], ["kill"])
    assert scene.cluster.zookeeper.done == ["pause"]
    assert (scene.writer_kills, scene.readings) == (1, 1)
    assert told == [
        "bookie 1 paused (SIGSTOP)",
        "bookie 1 resumed",
        "bookie 2 killed (-9)",
        "ZooKeeper paused (SIGSTOP)",
        "writer killed (-9)",
    ]


async def test_a_restart_is_marked_when_it_begins_and_when_it_serves() -> None:
    scene = Scene()
    told = await scene.run(f.KillBookie(0), f.RestartBookie(0))
    assert scene.bookies[0].done == ["kill", "restart"]
    assert told[1:] == ["bookie 1 started again", "bookie 1 serves again"]


async def test_the_network_to_one_bookie_is_delayed_until_it_is_healed() -> None:
    scene = Scene()
    await scene.run(f.DelayNetwork(1, 0.05))
    assert [proxy.delay_s for proxy in scene.proxies.values()] == [0.0, 0.05]
    await scene.run(f.HealSlowness())
    assert [proxy.delay_s for proxy in scene.proxies.values()] == [0.0, 0.0]


async def test_a_slow_process_is_stopped_repeatedly_and_runs_at_the_end() -> None:
    scene = Scene()
    await scene.run(f.SlowBookie(0, 0.001, 0.002), f.SlowZooKeeper(0.001, 0.002))
    for process in (scene.bookies[0], scene.cluster.zookeeper):
        for _ in range(3):
            process.resumed.clear()
            await process.resumed.wait()
    await scene.injector.heal()
    for process in (scene.bookies[0], scene.cluster.zookeeper):
        assert process.done.count("pause") >= 3
        assert process.done[-1] == "resume"


async def test_the_end_of_slowness_resumes_a_stopped_process() -> None:
    scene = Scene()
    await scene.run(f.SlowBookie(0, 30.0, 60.0))
    await scene.bookies[0].paused.wait()
    await scene.run(f.HealSlowness())
    assert scene.bookies[0].done == ["pause", "resume"]


async def test_healing_resumes_paused_processes_but_not_killed_ones() -> None:
    scene = Scene()
    await scene.run(f.PauseBookie(0), f.KillBookie(1), f.PauseZooKeeper())
    await scene.injector.heal()
    assert (scene.bookies[0].done, scene.bookies[1].done) == (["pause", "resume"], ["kill"])
    assert scene.cluster.zookeeper.done == ["pause", "resume"]

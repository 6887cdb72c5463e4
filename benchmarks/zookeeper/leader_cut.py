"""Benchmark of ZooKeeper's leader: for how long no change is answered when it ends or is cut off.

Three servers of `quire zookeeper run`, and a client that creates a node again and again. The leader
is killed, cut off from the others, or cut off in one direction. The figure is the longest time
between two answers. Needs Linux, root and `ip`, and a calm machine.
"""

import argparse
import asyncio
import itertools
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.runner import Bench, run
from benchmarks.zookeeper.network import address_of, cut, enter, hosts, on
from metadata.errors import MetadataError
from metadata.store.interface import MetadataStore
from metadata.store.zookeeper.store import open_store
from quire.addresses import join_address
from quire.zookeeper import PORT_DEFAULT
from quire.zookeeper.options import ZOOKEEPER
from quire.zookeeper.status import ask_servers

SERVERS: Final = (1, 2, 3)
CLIENT: Final = 4
ALL: Final = " ".join(f"{number}={address_of(number)}:2888:3888" for number in SERVERS)
PAUSE_S: Final = 0.05
SETTLED_S: Final = 10.0
START_S_MAX: Final = 120.0
ENDED: Final = "ended"
CASES: Final = (ENDED, "cut off", "sends nothing", "hears nothing")
TUNED: Final = ("tick_ms", "sync_ticks", "start_ticks")
TUNED_OF_ELECTIONS: Final = ("election_connect_ms", "election_pause_max_ms")


class Ensemble:
    """Three servers, each on a host of its own."""

    def __init__(self, directory: Path, flags: Sequence[str]) -> None:
        self._directory = directory
        self._flags = flags
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        """Start one server."""
        options = {
            "data-dir": str(self._directory / str(number)),
            "host": address_of(number),
            "id": str(number),
            "servers": ALL,
        }
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        program = [sys.executable, "-m", "quire.cli.main", "zookeeper", "run", "--allow-plaintext"]
        with (self._directory / f"{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                on(number, [*program, *flags, *self._flags]), stdout=log, stderr=log
            )

    def kill(self, number: int) -> None:
        """End one server at once; Java ends with it."""
        self._processes[number].kill()
        self._processes[number].wait()

    def stop(self) -> None:
        """End all servers in order."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait()

    async def leader(self) -> int:
        """Return the number of the leader, once all servers serve."""
        async with asyncio.timeout(START_S_MAX):
            while True:
                asked = await ask_servers([(address_of(host), PORT_DEFAULT) for host in SERVERS])
                modes = [server.mode for server in asked]
                if sorted(modes) == ["follower", "follower", "leader"]:
                    return SERVERS[modes.index("leader")]
                await asyncio.sleep(1)


async def _change(store: MetadataStore, answered: list[float]) -> None:
    """Make changes one after the other, for ever; note when each was answered."""
    number = 0
    while True:
        number += 1
        try:
            await store.create(f"/node-{number}", b"")
            answered.append(perf_counter())
        except MetadataError:
            continue
        finally:
            await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def _struck(ensemble: Ensemble, case: str, leader: int) -> AsyncIterator[None]:
    others = [number for number in SERVERS if number != leader]
    sent = [(leader, number) for number in others]
    heard = [(number, leader) for number in others]
    if case == ENDED:
        ensemble.kill(leader)
        yield
        ensemble.start(leader)
        return
    with cut({"cut off": sent + heard, "sends nothing": sent, "hears nothing": heard}[case]):
        yield


async def _measure_one(bench: Bench, ensemble: Ensemble, store: MetadataStore, case: str) -> None:
    answered: list[float] = []
    changing = asyncio.create_task(_change(store, answered))
    try:
        leader = await ensemble.leader()
        await asyncio.sleep(SETTLED_S)
        began = perf_counter()
        async with _struck(ensemble, case, leader):
            await asyncio.sleep(bench.size(bench.options.cut_s, 5))
        healed = perf_counter()
        await ensemble.leader()
        await asyncio.sleep(SETTLED_S)
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
    times = [began, *(time for time in answered if time > began), perf_counter()]
    longest, at = max((after - before, before) for before, after in itertools.pairwise(times))
    bench.report.sample(
        case,
        {
            "leader": leader,
            "longest_s": round(longest, 2),
            "from_s": round(at - began, 2),
            "healed_s": round(healed - began, 2),
        },
    )


async def _measure(bench: Bench) -> None:
    given = {name: getattr(bench.options, name) for name in (*TUNED, *TUNED_OF_ELECTIONS)}
    flags = [word for name in given for word in (ZOOKEEPER.options[name].flag, str(given[name]))]
    bench.report.note(f"with {given}")
    uri = ",".join(join_address(address_of(host), PORT_DEFAULT) for host in SERVERS)
    with ExitStack() as parts:
        parts.enter_context(hosts(CLIENT))
        enter(CLIENT)
        ensemble = Ensemble(bench.directory, flags)
        parts.callback(ensemble.stop)
        for number in SERVERS:
            ensemble.start(number)
        await ensemble.leader()
        store = await open_store(f"zk://{uri}/bench", rng=random.Random(1))
        try:
            for case in CASES:
                for _ in range(bench.repetitions):
                    async with bench.measured(f"the leader is {case}"):
                        await _measure_one(bench, ensemble, store, case)
                bench.report.figure(case, "longest_s", "s")
        finally:
            await store.aclose()


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cut-s", type=int, default=90, help="length of each fault")
    for name in (*TUNED, *TUNED_OF_ELECTIONS):
        option = ZOOKEEPER.options[name]
        parser.add_argument(option.flag, dest=name, type=int, default=option.default)


if __name__ == "__main__":
    run("leader_cut", _measure, _add_options, repeat=3)

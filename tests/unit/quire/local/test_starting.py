"""How long servers may take to start, and what is said meanwhile."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from metadata.store.embedded import EmbeddedZooKeeper
from quire.local.local_server import LocalServer
from quire.local.starting import SCALE_MAX, scale_of, start_all
from quire.local_cluster import LocalCluster
from tests.simulation.loop import run_simulation


@pytest.mark.parametrize(
    ("count", "cores", "load", "scale"),
    [
        (1, 2, 0.0, 1.0),
        (4, 2, 0.0, 2.0),
        (4, 2, 8.0, 6.0),
        (4, 0, 0.0, 4.0),
        (64, 2, 90.0, SCALE_MAX),
    ],
)
def test_a_limit_grows_with_what_shares_a_core(
    count: int, cores: int, load: float, scale: float
) -> None:
    assert scale_of(count, cores, load) == scale


def test_what_is_waited_for_is_said() -> None:
    lines: list[str] = []

    async def main() -> None:
        starts = {"bookie-1": asyncio.sleep(1), "bookie-2": asyncio.sleep(11)}
        await start_all({"bookie-3": asyncio.sleep(6), **starts}, lines.append, remind_s=5.0)
        await asyncio.sleep(20)

    run_simulation(main, 1, until_s=100)
    assert lines == [
        "Waiting for bookie-3, bookie-2, for 5 s now ...",
        "Waiting for bookie-2, for 10 s now ...",
    ]


def test_the_first_failure_cancels_the_others() -> None:
    ended: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("no port")

    async def waits() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("cancelled")

    async def main() -> None:
        starts = {"a": fails(), "b": waits()}
        with pytest.raises(ValueError, match="no port"):
            await start_all(starts, lambda _: None)

    run_simulation(main, 1, until_s=50)
    assert ended == ["cancelled"]


async def test_bookies_start_in_a_cluster_and_brokers_after_bookies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie gives up when ZooKeeper does not answer for 10 s, as on a busy machine."""
    ready: list[str] = []

    async def start_zookeeper(_self: EmbeddedZooKeeper) -> None:
        await asyncio.sleep(0.01)
        ready.append("ZooKeeper")

    async def start(self: LocalServer, *, started_count: int = 1) -> None:
        ready.append(f"{self.name} of {started_count}")

    async def create(_uri: str, _rng: Random) -> None:
        ready.append("cluster")

    monkeypatch.setattr(EmbeddedZooKeeper, "start", start_zookeeper)
    monkeypatch.setattr("quire.local_cluster.create_cluster", create)
    monkeypatch.setattr(LocalServer, "start", start)
    said: list[str] = []
    async with LocalCluster(2, tmp_path, broker=1, report=said.append):
        assert ready == [
            *("ZooKeeper", "cluster"),
            *("bookie-1 of 2", "bookie-2 of 2", "broker-1 of 1"),
        ]
    assert said == [
        f"Starting ZooKeeper in {tmp_path} ...",
        "Starting 2 bookies ...",
        "Starting 1 broker ...",
    ]

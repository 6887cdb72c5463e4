"""Tests of the simulated network: order of streams, cuts, and killed hosts."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from typing_extensions import override

from tests.simulation.loop import run_simulation, simulation_loop
from tests.simulation.network import HOST, Network, NetworkOdds


class Recorder(asyncio.Protocol):
    """Keeps received bytes; echoes them on request."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.transport: Any = None
        self.received = b""
        self.losses: list[Exception | None] = []
        self.pauses: list[str] = []
        self._echoes = echoes

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self.received += data
        if self._echoes:
            self.transport.write(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.losses.append(exc)

    @override
    def pause_writing(self) -> None:
        self.pauses.append("pause")

    @override
    def resume_writing(self) -> None:
        self.pauses.append("resume")


class Pair:
    """A server on host "b" and a client on host "a", connected."""

    def __init__(self, odds: NetworkOdds) -> None:
        self.loop = simulation_loop()
        self.network = Network(self.loop, 1, odds)
        self.network.install()
        self.client = Recorder()
        self.servers: list[Recorder] = []
        self.node = 0

    async def connect(self) -> None:
        """Listen as a separate node, and connect."""
        HOST.set("b")
        self.node, task = self.loop.spawn(self._listen())
        await task
        HOST.set("a")
        await self.loop.create_connection(lambda: self.client, "b", 80)
        await asyncio.sleep(0.1)

    async def _listen(self) -> None:
        await self.loop.create_server(self._serve, "b", 80)

    def _serve(self) -> Recorder:
        self.servers.append(Recorder(echoes=True))
        return self.servers[-1]


def run(test: Coroutine[None, None, None], seed: int = 1) -> None:
    """Run one test in virtual time."""

    async def main() -> None:
        await test

    run_simulation(main, seed)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_for_any_split(seed: int) -> None:
    async def test() -> None:
        pair = Pair(NetworkOdds(split_share=0.7, slow_share=0.3, slow_delay_s=0.2))
        await pair.connect()
        pieces = [bytes([number % 256]) * (number * 7 % 100) for number in range(400)]
        for piece in pieces:
            pair.client.transport.write(piece)
        await asyncio.sleep(500)
        assert pair.client.received == b"".join(pieces)

    run(test(), seed)


def test_a_full_pipe_pauses_the_writer_until_it_is_read() -> None:
    async def test() -> None:
        pair = Pair(NetworkOdds())
        await pair.connect()
        pair.servers[0].transport.pause_reading()
        pair.client.transport.write(bytes(2**20))
        await asyncio.sleep(1)
        assert pair.client.pauses == ["pause"]
        assert pair.servers[0].received == b""
        pair.servers[0].transport.resume_reading()
        await asyncio.sleep(10)
        assert pair.client.pauses == ["pause", "resume"]
        assert len(pair.servers[0].received) == 2**20

    run(test())


def test_a_cut_delays_one_direction_until_it_heals() -> None:
    async def test() -> None:
        pair = Pair(NetworkOdds())
        await pair.connect()
        pair.network.cut("a", "b")
        pair.client.transport.write(b"kept")
        pair.servers[0].transport.write(b"through")
        await asyncio.sleep(30)
        assert pair.client.received == b"through"
        pair.network.heal("a", "b")
        await asyncio.sleep(1)
        assert pair.servers[0].received == b"kept"

    run(test())


@pytest.mark.parametrize(("never_seen_share", "loss_count"), [(0.0, 1), (1.0, 0)])
def test_a_killed_node_is_seen_by_its_peer_later_or_never(
    never_seen_share: float, loss_count: int
) -> None:
    async def test() -> None:
        pair = Pair(NetworkOdds(never_seen_share=never_seen_share))
        await pair.connect()
        pair.loop.kill(pair.node)
        pair.network.kill(pair.node, "b", power_off=False)
        await asyncio.sleep(10)
        assert len(pair.client.losses) == loss_count
        assert pair.servers[0].losses == []
        with pytest.raises(ConnectionRefusedError):
            await pair.loop.create_connection(Recorder, "b", 80)

    run(test())


def test_a_paused_node_reads_received_bytes_after_it_resumes() -> None:
    async def test() -> None:
        pair = Pair(NetworkOdds())
        await pair.connect()
        pair.loop.pause(pair.node)
        pair.client.transport.write(b"patience")
        await asyncio.sleep(60)
        assert pair.servers[0].received == b""
        pair.loop.resume(pair.node)
        await asyncio.sleep(1)
        assert pair.client.received == b"patience"

    run(test())


def test_closing_notifies_the_peer_after_it_read_all_bytes() -> None:
    async def test() -> None:
        pair = Pair(NetworkOdds(split_share=0.5))
        await pair.connect()
        pair.client.transport.write(b"last words")
        pair.client.transport.close()
        await asyncio.sleep(5)
        assert pair.servers[0].received == b"last words"
        assert pair.servers[0].losses == [None]
        assert pair.client.losses == [None]

    run(test())

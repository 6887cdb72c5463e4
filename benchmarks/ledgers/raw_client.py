"""Client of the baseline: sends the same bytes to a few `benchmarks.ledgers.raw_server` processes
and waits for their responses.

Leaves the cases to `benchmarks.ledgers.raw`, and to `benchmarks.ledgers.append`, which runs it next
to the product.

Invariants: like a ledger's writer it limits the bytes that the ack quorum has not acknowledged, and
the bytes that the slowest replica has not acknowledged.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Final, cast

from benchmarks.measures import quorum_reached
from benchmarks.processes import Metered

REPLICAS: Final = 3
WINDOW_BYTES: Final = 64 * 1024 * 1024
UNANSWERED_BYTES_MAX: Final = 256 * 1024 * 1024
POSITION_BYTES: Final = 8
UNLIMITED_BYTES: Final = 1 << 30
"""Write buffer limit of a transport. The window limits the buffer; a lower limit would only cost
callbacks."""


class _Replica(asyncio.Protocol):
    def __init__(self, group: "RawGroup") -> None:
        self.durable = 0
        self.is_ready = False
        self._group = group
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[explicit-override]
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(UNLIMITED_BYTES)

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        received = self._received + data
        whole = len(received) // POSITION_BYTES * POSITION_BYTES
        self._received = received[whole:]
        if whole:
            self.is_ready = True
            self.durable = int.from_bytes(received[whole - POSITION_BYTES : whole], "little")
            self._group.wake()

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class RawGroup:
    """Open connections to a few servers."""

    def __init__(self, ack_quorum: int) -> None:
        self.replicas: list[_Replica] = []
        self.sent = 0
        self._ack_quorum = ack_quorum
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wake the sender to check the replicas' progress."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def send(self, data: bytes) -> None:
        """Send the same bytes to all."""
        for replica in self.replicas:
            replica.send(data)
        self.sent += len(data)

    @property
    def acknowledged(self) -> int:
        """Number of bytes that are durable on the ack quorum."""
        return quorum_reached([replica.durable for replica in self.replicas], self._ack_quorum)

    @property
    def replicated(self) -> int:
        """Number of bytes that are durable on all replicas."""
        return min(replica.durable for replica in self.replicas)

    async def changed(self) -> None:
        """Wait until a server responds."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


@asynccontextmanager
async def raw_group(
    form: str, directory: Path, total_bytes: int, ack_quorum: int
) -> AsyncIterator[tuple[RawGroup, Sequence[int]]]:
    """Start servers, connect, yield the group and the servers' process ids; stop them and remove
    their files.
    """
    loop = asyncio.get_running_loop()
    group = RawGroup(ack_quorum)
    files = [directory / f"raw-{number}" for number in range(REPLICAS)]
    command = [sys.executable, "-m", "benchmarks.ledgers.raw_server", form]
    servers = [
        subprocess.Popen(
            [*command, str(file), str(total_bytes)], stdout=subprocess.PIPE, cwd=Path.cwd()
        )
        for file in files
    ]
    try:
        for server in servers:
            assert server.stdout is not None
            port = int(await asyncio.to_thread(server.stdout.readline))
            _, replica = await loop.create_connection(lambda: _Replica(group), "127.0.0.1", port)
            group.replicas.append(replica)
        while not all(replica.is_ready for replica in group.replicas):
            await group.changed()
        yield group, [server.pid for server in servers]
    finally:
        for replica in group.replicas:
            replica.close()
        await asyncio.sleep(0.05)  # the transports close on the event loop
        for server in servers:
            if len(group.replicas) < REPLICAS:
                server.kill()
            await asyncio.to_thread(server.wait)
            if server.stdout is not None:
                server.stdout.close()
        for file in files:
            file.unlink(missing_ok=True)


async def raw_throughput(
    directory: Path, batch_bytes: int, batch_count: int, ack_quorum: int
) -> dict[str, object]:
    """Send batches through a window; return seconds until all are acknowledged and replicated."""
    total_bytes = batch_bytes * batch_count
    batch = _incompressible(batch_bytes)
    async with raw_group("overlapped", directory, total_bytes, ack_quorum) as (group, pids):
        metered = Metered(pids)
        start = perf_counter()
        for _ in range(batch_count):
            while (
                group.sent - group.acknowledged > WINDOW_BYTES - batch_bytes
                or group.sent - group.replicated > UNANSWERED_BYTES_MAX
            ):
                await group.changed()
            group.send(batch)
            await asyncio.sleep(0)  # one batch per iteration of the event loop, as a writer
        while group.acknowledged < total_bytes:
            await group.changed()
        acknowledged_s = perf_counter() - start
        while group.replicated < total_bytes:
            await group.changed()
        replicated_s = perf_counter() - start
        own, servers = metered.finish()
    return {
        "acknowledged_s": acknowledged_s,
        "replicated_s": replicated_s,
        "wire_bytes": total_bytes,
        "client_cpu_s": own.cpu_s,
        "servers_cpu_s": servers.cpu_s,
        "servers_written_bytes": servers.written_bytes,
    }


async def raw_latency(
    directory: Path, batch_bytes: int, count: int, ack_quorum: int
) -> list[float]:
    """Send one batch at a time; return the seconds until each is acknowledged."""
    batch = _incompressible(batch_bytes)
    latencies: list[float] = []
    async with raw_group("in_turn", directory, batch_bytes * count, ack_quorum) as (group, _):
        for _ in range(count):
            start = perf_counter()
            group.send(batch)
            while group.acknowledged < group.sent:
                await group.changed()
            latencies.append(perf_counter() - start)
        while group.replicated < group.sent:
            await group.changed()
    return latencies


def _incompressible(size: int) -> bytes:
    return os.urandom(size)

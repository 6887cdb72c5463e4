"""A bookie's server on a real socket, with a storage that the test controls."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from bookie.server.server import BookieServer
from bookie.server.server_context import ServerContext
from bookie.server.server_counters import ServerCounters
from bookie.server.server_limits import ServerLimits
from metadata.ids import BookieId
from serving.server_log import ServerLog
from tests.support.bookie.manual_storage import ManualStorage
from tests.support.bookie.wire_client import WireClient

BOOKIE = BookieId("bookie-test")
LIMITS = ServerLimits(
    connections_max=20,
    sweep_interval_s=0.02,
    hello_deadline_s=0.2,
    frame_deadline_s=0.2,
    write_stall_s=0.2,
    write_buffer_bytes_max=64 * 1024,
    attached_ledgers_max=5,
    requests_running_max=4,
    requests_waiting_max=8,
    long_polls_per_connection_max=6,
    long_polls_max=9,
    ranges_per_answer_max=3,
    drain_timeout_s=2.0,
)


@dataclass
class RunningServer:
    """A running server and its parts."""

    storage: ManualStorage
    context: ServerContext
    server: BookieServer
    address: tuple[str, int]

    async def client(self, *ledgers: int) -> WireClient:
        return await WireClient.greeted(self.address, BOOKIE, ledgers)

    @property
    def counters(self) -> ServerCounters:
        return self.context.counters


async def serve(limits: ServerLimits) -> RunningServer:
    loop = asyncio.get_running_loop()
    storage = ManualStorage()
    context = ServerContext(
        BOOKIE, storage, limits, ServerCounters(), ServerLog(loop.time), loop.time
    )
    server = BookieServer(context)
    address = await server.start("127.0.0.1", 0)
    return RunningServer(storage, context, server, address)


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    made = await serve(LIMITS)
    yield made
    made.storage.commits_by_itself = True
    made.storage.commit()
    made.storage.reads_wait.set()
    made.storage.room.set()
    await made.server.close()
    assert made.counters.connections_now == 0
    assert made.counters.long_polls_now == 0


@pytest.fixture
async def patient() -> AsyncIterator[RunningServer]:
    """Serve with deadlines longer than any test."""
    made = await serve(replace(LIMITS, hello_deadline_s=60, frame_deadline_s=60, write_stall_s=60))
    yield made
    await made.server.close()

"""A bookie's server on a real socket, with a storage that the test controls."""

import asyncio
from dataclasses import dataclass

from bookie.server.access import LedgerAuthorizer, ServerAccess
from bookie.server.client_logins import ClientLogins
from bookie.server.connection import BookieServer
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters, ServerLimits
from metadata.ids import BookieId
from quire.server.server_log import ServerLog
from tests.support.bookie.manual_storage import ManualStorage
from tests.support.bookie.wire_client import WireClient
from tests.until import WAIT_S

BOOKIE = BookieId("bookie-test")
LIMITS = ServerLimits(
    connections_max=20,
    sweep_interval_s=0.02,
    hello_deadline_s=WAIT_S,
    frame_deadline_s=WAIT_S,
    write_stall_s=WAIT_S,
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

    keys: "StoredKeys"
    storage: ManualStorage
    context: ServerContext
    server: BookieServer
    address: tuple[str, int]

    async def client(self, *ledgers: int) -> WireClient:
        return await WireClient.greeted(self.address, BOOKIE, ledgers)

    @property
    def counters(self) -> ServerCounters:
        return self.context.counters


class StoredKeys:
    """Key of repair in the metadata, as a test wants it."""

    def __init__(self) -> None:
        self.key: bytes | None = None
        self.raises: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.read_count = 0

    async def read(self) -> bytes | None:
        self.read_count += 1
        await self.answers.wait()
        if self.raises is not None:
            raise self.raises
        return self.key


async def serve(
    limits: ServerLimits,
    authorizer: LedgerAuthorizer | None = None,
    logins: ClientLogins | None = None,
) -> RunningServer:
    loop = asyncio.get_running_loop()
    storage = ManualStorage()
    keys = StoredKeys()
    access = ServerAccess(keys.read, loop.time, logins)
    log, counters = ServerLog(loop.time), ServerCounters()
    context = ServerContext(BOOKIE, storage, access, limits, counters, log, loop.time, authorizer)
    server = BookieServer(context)
    address = await server.start("127.0.0.1", 0)
    return RunningServer(keys, storage, context, server, address)

"""Clients of one bookie with quotas, in virtual time: they send while the bookie reads.

Leaves judging rates and delays to the tests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.server.access import RoleOptions, ServerAccess
from bookie.server.connection import ClientConnection
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters, ServerLimits
from bookie.wire.batch import Buffer
from bookie.wire.codec import Entries, decode_acks, decode_entries, decode_reply, encode_message
from bookie.wire.frames import ADD_RECOVERY, Frame, FrameKind, frame_header
from bookie.wire.messages import AttachLedger, HelloReply, Reply, Request, Status
from metadata.ids import LedgerId
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey, entity_of
from quire.identity.principal import MappingRule
from quire.server.connection import Pause
from quire.server.server_log import ServerLog
from tests.fuzz.memory_transport import MemoryTransport
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.manual_storage import ManualStorage
from tests.support.bookie.running_server import BOOKIE
from tests.support.bookie.wire_client import KEY, batch_of, hello
from tests.until import until

APPENDED: Final = QuotaKey.APPEND_BYTE_RATE
READ: Final = QuotaKey.READ_BYTE_RATE
REPAIR_KEY: Final = b"the key of repair, 32 bytes long"
ROOT: Final = "User:CN=root"
BATCH_BYTES: Final = 50_000


class NamedTransport(MemoryTransport):
    """Connection of a client with a certificate, or without one."""

    def __init__(self, protocol: asyncio.BufferedProtocol, name: str) -> None:
        super().__init__(protocol)
        self._name = name

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert" and self._name:
            return {"subject": ((("commonName", self._name),),)}
        return super().get_extra_info(name, default)


class QuotaClient:
    """One connection; it sends nothing while the bookie does not read."""

    def __init__(self, context: ServerContext, name: str) -> None:
        self.connection = ClientConnection(context)
        self.transport = NamedTransport(self.connection, name)
        self.connection.connection_made(self.transport)
        self._last_id = 0
        self._acks: dict[int, Status] = {}
        self._answers: dict[int, Frame] = {}

    @property
    def is_throttled(self) -> bool:
        return bool(self.connection._pause & Pause.THROTTLED)

    async def greet(self, credentials: bytes = b"") -> None:
        reply = await self.ask(hello(BOOKIE, credentials=credentials))
        assert isinstance(reply, HelloReply)
        assert reply.status is Status.OK, reply

    async def attach(self, ledger_id: int) -> None:
        await self.deliver(self.frame_of(AttachLedger(LedgerId(ledger_id), KEY)))

    async def add(self, batch: Buffer, *, recovery: bool = False) -> Status:
        """Add a batch; return the status of its answer."""
        self._last_id += 1
        flags = ADD_RECOVERY if recovery else 0
        head = frame_header(FrameKind.ADD, self._last_id, len(batch), flags)
        request_id = self._last_id
        await self.deliver(head + bytes(batch))
        while request_id not in self._acks:
            await self._take()
        return self._acks.pop(request_id)

    def frame_of(self, request: Request) -> bytes:
        self._last_id += 1
        body = encode_message(request)
        return frame_header(FrameKind.REQUEST, self._last_id, len(body)) + body

    async def ask(self, request: Request) -> Reply | Entries:
        return (await self.ask_together([request]))[0]

    async def ask_together(self, requests: Sequence[Request]) -> list[Reply | Entries]:
        """Send requests in one piece; return the answers in their order."""
        numbers = await self.send_together(requests)
        return [await self.answer(number) for number in numbers]

    async def send_together(self, requests: Sequence[Request]) -> list[int]:
        """Send requests in one piece; return their ids."""
        first = self._last_id + 1
        await self.deliver(b"".join(self.frame_of(request) for request in requests))
        return list(range(first, self._last_id + 1))

    async def answer(self, request_id: int) -> Reply | Entries:
        while request_id not in self._answers:
            await self._take()
        frame = self._answers.pop(request_id)
        is_read = frame.kind is FrameKind.ENTRIES
        return decode_entries(frame.body) if is_read else decode_reply(frame.body)

    async def deliver(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            await until(self.transport.is_reading)
            room = memoryview(self.connection.get_buffer(-1))
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            room.release()
            at += count
            self.connection.buffer_updated(count)

    async def _take(self) -> None:
        await until(lambda: bool(self.transport.frames))
        frames, self.transport.frames = self.transport.frames, []
        for frame in frames:
            if frame.kind is FrameKind.ACKS:
                self._acks.update(decode_acks(frame.body))
            else:
                self._answers[frame.request_id] = frame


@dataclass
class QuotaWorld:
    """One bookie, its quotas and its clients."""

    context: ServerContext
    storage: ManualStorage
    quotas: QuotaSet = field(default_factory=QuotaSet)
    clients: list[QuotaClient] = field(default_factory=list)

    @property
    def counters(self) -> ServerCounters:
        return self.context.counters

    def limit(self, name: str | None, key: QuotaKey, per_s: float) -> None:
        """Give a user a quota; None is the default."""
        entity = entity_of([("user", name)])
        self.quotas.put(entity, {**self.quotas.quotas.get(entity, {}), key: per_s})

    async def client(self, name: str, *ledgers: int, credentials: bytes = b"") -> QuotaClient:
        """Connect a client with a certificate of this common name; empty for none."""
        client = QuotaClient(self.context, name)
        self.clients.append(client)
        await client.greet(credentials)
        for ledger_id in ledgers:
            await client.attach(ledger_id)
        return client

    async def fill(self, ledger_id: int, count: int) -> None:
        """Store a ledger of batches of BATCH_BYTES, one entry each, as a client without quota."""
        client = await self.client("filler", ledger_id)
        for number in range(count):
            assert await client.add(entry(ledger_id, number)) is Status.OK


def entry(ledger_id: int, number: int) -> bytearray:
    """Return a batch of one entry of BATCH_BYTES."""
    return batch_of(ledger_id, number, [bytes(BATCH_BYTES)], lac=number - 1)


def run(scenario: Callable[[QuotaWorld], Awaitable[None]]) -> None:
    """Run a scenario in virtual time."""

    async def read_key() -> bytes:
        return REPAIR_KEY

    async def main() -> None:
        now, storage = simulation_loop().time, ManualStorage()
        access = ServerAccess(read_key, now)
        await access.start()
        context = ServerContext(
            BOOKIE, storage, access, ServerLimits(), ServerCounters(), ServerLog(now), now
        )
        world = QuotaWorld(context, storage)
        context.limit_clients(
            world.quotas, RoleOptions(rules=(MappingRule(),), super_users=(ROOT,))
        )
        await scenario(world)
        for client in world.clients:
            client.transport.close()
        await asyncio.sleep(0)

    run_simulation(main, 1)

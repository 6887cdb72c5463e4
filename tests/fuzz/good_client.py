"""Correct client, active at the same time as bad ones, that checks its answers.

Leaves the bad clients to `tests.fuzz.server_episode`.
"""

import asyncio
import random
from typing import Final

from bookie.server.connection import ClientConnection
from bookie.wire.batch import build_batch
from bookie.wire.codec import decode_acks, decode_entries, decode_reply, encode_message
from bookie.wire.frames import FrameKind
from bookie.wire.messages import AttachLedger, Hello, HelloReply, ReadEntries, Request, Status
from metadata.ids import BookieId, EntryId, LedgerId
from tests.fuzz.findings import require
from tests.fuzz.memory_transport import MemoryTransport
from tests.fuzz.streams import RawFrame
from tests.simulation.loop import simulation_loop

LEDGER: Final = LedgerId(2**40 + 12_345)
KEY: Final = b"only the good client has this key"[:32]
SEED: Final = 4_711
ANSWER_S_MAX: Final = 120.0
STEP_S: Final = 0.01
READS_EVERY: Final = 5


class GoodClient:
    """One connection; it reads back what it stored."""

    def __init__(self, connection: ClientConnection, bookie_id: BookieId) -> None:
        self._bookie_id = bookie_id
        self._transport = MemoryTransport(connection)
        self._connection = connection
        self._stored: list[bytes] = []
        self._length = 0
        self._last_id = 0
        self._rng = random.Random(1)

    async def greet(self) -> None:
        """Say hello."""
        self._connection.connection_made(self._transport)
        await self._send_request(Hello(self._bookie_id, 1, 1, 0, b"", "good"))
        frame = await self._answer()
        reply = decode_reply(frame)
        require(isinstance(reply, HelloReply) and reply.status is Status.OK, "it is welcome")
        await self._send_request(AttachLedger(LEDGER, KEY))

    async def work(self) -> None:
        """Append a batch, and sometimes read all entries."""
        first = len(self._stored)
        payloads = [b"entry %d" % (first + i) * (1 + i) for i in range(4)]
        batch = build_batch(
            LEDGER, EntryId(first), EntryId(first - 1), self._length, payloads, SEED
        )
        self._last_id += 1
        await self._send(RawFrame(FrameKind.ADD, self._last_id, bytes(batch)))
        acks = decode_acks(await self._answer())
        require(acks == [(self._last_id, Status.OK)], f"a good add is stored, not {acks}")
        self._stored += payloads
        self._length += sum(map(len, payloads))
        if len(self._stored) // 4 % READS_EVERY == 0:
            await self._read_all()

    async def leave(self) -> None:
        """Read once more, and disconnect."""
        await self._read_all()
        self._transport.close()

    async def _read_all(self) -> None:
        at = 0
        while at < len(self._stored):
            last = EntryId(len(self._stored) - 1)
            await self._send_request(ReadEntries(LEDGER, EntryId(at), last, 2_000, fence=False))
            answer = decode_entries(memoryview(await self._answer()))
            require(answer.batches, "what was stored is read")
            for batch in answer.batches:
                batch.verify_crc()
                batch.verify_digests(SEED)
                require(batch.header.first_entry_id == at, "entries come in order")
                found = [bytes(view) for view in batch.payload_views()]
                require(found == self._stored[at : at + len(found)], "bytes are those stored")
                at += len(found)

    async def _send_request(self, request: Request) -> None:
        self._last_id += 1
        await self._send(RawFrame(FrameKind.REQUEST, self._last_id, encode_message(request)))

    async def _send(self, frame: RawFrame) -> None:
        require(not self._transport.is_closing(), "a good client keeps its connection")
        await self._transport.deliver(frame.encode(), self._rng)

    async def _answer(self) -> memoryview:
        loop = simulation_loop()
        deadline = loop.time() + ANSWER_S_MAX
        while not self._transport.frames:
            require(loop.time() < deadline, "a good client is answered")
            require(not self._transport.is_closing(), "a good client keeps its connection")
            await asyncio.sleep(STEP_S)
        return self._transport.frames.pop(0).body

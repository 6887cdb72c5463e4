"""A client that sends exactly what a test wants, also what no real client sends.

Leaves judging the answers to the tests.
"""

import asyncio
from collections.abc import Sequence

from bookie.wire.batch import Buffer, build_batch
from bookie.wire.codec import Entries, decode_acks, decode_entries, decode_reply, encode_message
from bookie.wire.frames import (
    ADD_RECOVERY,
    FRAME_BYTES_MAX,
    Frame,
    FrameAssembler,
    FrameKind,
    frame_header,
)
from bookie.wire.messages import (
    AttachLedger,
    Hello,
    HelloReply,
    Ping,
    Pong,
    Reply,
    Request,
    Status,
)
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from tests.until import WAIT_S

SEED = 77
KEY = bytes(range(32))


def hello(
    bookie_id: str, low: int = 1, high: int = 1, credentials: bytes = b"", features: int = 0
) -> Hello:
    return Hello(bookie_id, low, high, features, credentials, "test")


def batch_of(
    ledger_id: int,
    first: int,
    payloads: Sequence[bytes] = (b"payload",),
    lac: int = NO_ENTRY,
    length_before: int = 0,
) -> bytearray:
    return build_batch(
        LedgerId(ledger_id), EntryId(first), EntryId(lac), length_before, list(payloads), SEED
    )


class WireClient:
    """One connection; answers are kept by request id until a test takes them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.acks: dict[int, Status] = {}
        self.ack_frames = 0
        self.frames: dict[int, Frame] = {}
        self._assembler = FrameAssembler(FRAME_BYTES_MAX)
        self._last_id = 0

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> "WireClient":
        return cls(*await asyncio.open_connection(*address))

    @classmethod
    async def greeted(
        cls, address: tuple[str, int], bookie_id: str, ledgers: Sequence[int] = ()
    ) -> "WireClient":
        client = await cls.connect(address)
        reply = await client.request(hello(bookie_id))
        assert isinstance(reply, HelloReply)
        assert reply.status is Status.OK, reply
        for ledger_id in ledgers:
            client.attach(ledger_id)
        return client

    def send(self, data: Buffer) -> None:
        self.writer.write(data)

    def send_request(self, request: Request) -> int:
        self._last_id += 1
        body = encode_message(request)
        self.send(frame_header(FrameKind.REQUEST, self._last_id, len(body)) + body)
        return self._last_id

    def attach(self, ledger_id: int, key: bytes = KEY) -> None:
        self.send_request(AttachLedger(LedgerId(ledger_id), key))

    def send_add(self, batch: Buffer, *, recovery: bool = False) -> int:
        self._last_id += 1
        flags = ADD_RECOVERY if recovery else 0
        self.send(frame_header(FrameKind.ADD, self._last_id, len(batch), flags))
        self.send(batch)
        return self._last_id

    async def add(self, batch: Buffer, *, recovery: bool = False) -> Status:
        return await self.ack(self.send_add(batch, recovery=recovery))

    async def ack(self, request_id: int) -> Status:
        async with asyncio.timeout(WAIT_S):
            while request_id not in self.acks:
                await self._receive()
        return self.acks.pop(request_id)

    async def request(self, request: Request) -> Reply | Entries:
        return await self.answer(self.send_request(request))

    async def is_offered(self) -> bool:
        """Ping the bookie; return whether writers should use it."""
        pong = await self.request(Ping())
        assert isinstance(pong, Pong)
        return pong.writable

    async def answer(self, request_id: int) -> Reply | Entries:
        async with asyncio.timeout(WAIT_S):
            while request_id not in self.frames:
                await self._receive()
        frame = self.frames.pop(request_id)
        if frame.kind is FrameKind.ENTRIES:
            return decode_entries(frame.body)
        assert frame.kind is FrameKind.REPLY
        return decode_reply(frame.body)

    async def request_entries(self, request: Request) -> Entries:
        answer = await self.request(request)
        assert isinstance(answer, Entries), answer
        return answer

    async def is_closed_by_peer(self) -> bool:
        """Wait until the peer closes, at most WAIT_S; keep everything that it still sends."""
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    await self._receive()
        except (ConnectionError, EOFError):
            self.abort()
            return True
        except TimeoutError:
            return False

    def abort(self) -> None:
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return

    async def _receive(self) -> None:
        data = await self.reader.read(65_536)
        if not data:
            raise EOFError("the bookie closed the connection")
        for frame in feed(self._assembler, data):
            self._keep(frame)

    def _keep(self, frame: Frame) -> None:
        if frame.kind is FrameKind.ACKS:
            self.ack_frames += 1
            for request_id, status in decode_acks(frame.body):
                assert request_id not in self.acks, "an add was answered twice"
                self.acks[request_id] = status
        else:
            assert frame.request_id not in self.frames, "a request was answered twice"
            self.frames[frame.request_id] = frame


def feed(assembler: FrameAssembler, data: bytes | bytearray | memoryview) -> list[Frame]:
    """Pass received bytes to an assembler, as a transport would."""
    frames: list[Frame] = []
    while data:
        room = assembler.get_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        frames += assembler.buffer_updated(count)
    return frames


def payloads_of(entries: Entries) -> dict[int, bytes]:
    """Return the entries of an answer by id, each checked against its digest."""
    found: dict[int, bytes] = {}
    for view in entries.batches:
        view.verify_crc()
        view.verify_digests(SEED)
        for index, payload in enumerate(view.payload_views()):
            found[view.header.first_entry_id + index] = bytes(payload)
    return found

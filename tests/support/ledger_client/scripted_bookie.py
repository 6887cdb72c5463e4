"""Small bookie made from bookie.wire, with scripted answers."""

import asyncio
from ssl import SSLContext
from typing import TYPE_CHECKING

from bookie.wire.batch import BatchView
from bookie.wire.codec import decode_request, encode_acks, encode_entries, encode_message
from bookie.wire.frames import (
    FRAME_BYTES_MAX,
    Frame,
    FrameAssembler,
    FrameKind,
    frame_header,
)
from bookie.wire.messages import (
    WIRE_VERSION,
    AttachLedger,
    BeginLogin,
    ContinueLogin,
    DetachLedger,
    EntryRanges,
    FenceWithoutKey,
    Hello,
    HelloReply,
    LacReply,
    ListEntries,
    Ping,
    Pong,
    ReadAccess,
    ReadEntries,
    ReadLac,
    ReadRights,
    Refused,
    Reply,
    ReportLac,
    Request,
    Status,
    WaitLac,
    WriteLac,
)
from ledger_client.bookies.pool_link import BookieAddress
from metadata.errors import StoreUnavailableError
from metadata.ids import BookieId, EntryId
from tests.support.bookie.wire_client import feed

if TYPE_CHECKING:
    from collections.abc import Callable


class ScriptedBookie:
    """Bookie that stores nothing, records requests, and answers at once unless scripted
    otherwise.
    """

    def __init__(self, bookie_id: str) -> None:
        self.id = BookieId(bookie_id)
        self.requests: list[Request] = []
        self.adds: list[tuple[int, BatchView]] = []
        self.order: list[str] = []
        self.reads: list[int] = []
        self.is_silent = False
        self.is_refusing = False
        """Whether it ends each new connection at once."""
        self.late_s = 0.0
        """Time after which it answers an add."""
        self.hello: Callable[[Hello], HelloReply | None] = self.accept
        self.answer: Callable[[Request], Reply | bytes | None] = self.usual_answer
        self.add_status = Status.OK
        self.add_refusal: Refused | None = None
        self.principal = ""
        """What it says of each client."""
        self.connection_count = 0
        self.speaking = 0
        """Connection whose frame is being answered."""
        self.frame_bytes_max = FRAME_BYTES_MAX
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, ssl: SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=ssl)

    @property
    def address(self) -> BookieAddress:
        assert self._server is not None
        return BookieAddress(
            "127.0.0.1", self._server.sockets[0].getsockname()[1], is_tls=False, offers_tls=False
        )

    def drop_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.drop_connections()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def send_raw(self, data: bytes) -> None:
        """Send bytes on every connection."""
        for writer in self._writers:
            writer.write(data)

    def accept(self, hello: Hello) -> HelloReply:
        same = hello.bookie_id == self.id
        status = Status.OK if same else Status.WRONG_BOOKIE
        limits = self.frame_bytes_max, 2**20
        return HelloReply(status, self.id, WIRE_VERSION, 0, *limits, "", self.principal)

    def usual_answer(self, request: Request) -> Reply | bytes | None:
        match request:
            case ReadLac() | WriteLac():
                return LacReply(Status.OK, EntryId(5), EntryId(7), fenced=False)
            case ListEntries():
                return EntryRanges(Status.OK, ((0, 7),), complete=True)
            case Ping():
                return Pong(writable=True, append_p99_us=0)
            case ReadEntries() | WaitLac():
                nothing = encode_entries(Status.NO_SUCH_ENTRY, EntryId(5), EntryId(8), [])
                return b"".join(nothing)
            case ReadAccess() | FenceWithoutKey() | ReadRights():
                return Refused(Status.UNAUTHORIZED, "anonymous")
            case BeginLogin() | ContinueLogin():
                return Refused(Status.BAD_REQUEST, "no login is due")
            case Hello() | AttachLedger() | DetachLedger() | ReportLac():
                return None

    def answer_add(self, frame: Frame) -> bytes:
        """Return the ACKS frame that answers an add."""
        body = encode_acks([(frame.request_id, self.add_status)])
        return frame_header(FrameKind.ACKS, 0, len(body)) + body

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        if self.is_refusing:
            writer.transport.abort()
            return
        self._writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        assembler = FrameAssembler(FRAME_BYTES_MAX)
        try:
            while data := await reader.read(2**16):
                self.reads.append(len(data))
                for frame in feed(assembler, data):
                    self._take(frame, writer)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()

    def _take(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        self.speaking = id(writer)
        if frame.kind is FrameKind.ADD:
            batch = BatchView(frame.body)
            self.adds.append((frame.flags, batch))
            self.order.append(f"add {batch.header.ledger_id}/{batch.header.first_entry_id}")
            if not self.is_silent:
                acks = self.answer_add(frame)
                if self.late_s > 0:
                    asyncio.get_running_loop().call_later(self.late_s, writer.write, acks)
                else:
                    writer.write(acks)
            return
        request = decode_request(frame.body)
        self.requests.append(request)
        self.order.append(type(request).__name__)
        if self.is_silent:
            return
        answer = self.hello(request) if isinstance(request, Hello) else self.answer(request)
        if answer is not None:
            kind = FrameKind.ENTRIES if isinstance(answer, bytes) else FrameKind.REPLY
            body = answer if isinstance(answer, bytes) else encode_message(answer)
            writer.write(frame_header(kind, frame.request_id, len(body)) + body)


class ScriptedAddresses:
    """Addresses that a test sets."""

    def __init__(self, *bookies: ScriptedBookie) -> None:
        self.known = {bookie.id: bookie.address for bookie in bookies}
        self.fresh: dict[BookieId, BookieAddress] = {}
        self.is_down = False
        self.asked: list[tuple[BookieId, bool]] = []

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        self.asked.append((bookie_id, fresh))
        await asyncio.sleep(0)
        if self.is_down:
            raise StoreUnavailableError("nowhere", "a test says so")
        if fresh and bookie_id in self.fresh:
            return self.fresh[bookie_id]
        return self.known.get(bookie_id)

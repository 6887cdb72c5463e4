"""Client of a bookie's real connection for transcripts: requests out, answers as lines.

Leaves the bookie behind the connection, and the order of events, to `bookie_player.py`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from random import Random
from typing import Final

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.server.connection import ClientConnection
from bookie.server.server_context import ServerContext
from bookie.wire import messages as m
from bookie.wire.codec import Entries, decode_acks, decode_entries, decode_reply, encode_message
from bookie.wire.frames import (
    ADD_RECOVERY,
    FRAME_BYTES_MAX,
    Frame,
    FrameAssembler,
    FrameKind,
    frame_header,
)
from metadata.ids import EntryId, LedgerId
from metadata.repair.repair_key import read_or_create_repair_key
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.bookie.batches import make_batch, payload_of
from tests.support.bookie.wire_client import feed

WAIT_MS: Final = 30_000
BYTES_MAX: Final = 1 << 20
KEY_READ_S: Final = 0.1
"""Time in which the bookie has read the key of repair."""
OTHER_PAYLOAD: Final = b"other bytes"


class Wire(asyncio.Transport):
    """The client's end of one connection: sends requests, and records every answer as a line."""

    def __init__(self, context: ServerContext, lines: list[str], name: str) -> None:
        super().__init__()
        self._lines = lines
        self._name = name
        self._asked: dict[int, str] = {}
        self._assembler = FrameAssembler(FRAME_BYTES_MAX)
        self._last_id = 0
        self._is_closing = False
        self.sasl_message = b""
        """Message of the last answer to one of a login."""
        self._connection = ClientConnection(context)
        self._connection.connection_made(self)

    def ask(self, label: str, request: m.Request) -> None:
        """Send a request; the label is empty if its answer is absent or ignored."""
        self._send(label, FrameKind.REQUEST, encode_message(request))

    def add(self, label: str, batch: bytes, *, recovery: bool) -> None:
        """Send a batch."""
        self._send(label, FrameKind.ADD, batch, ADD_RECOVERY if recovery else 0)

    def lose(self) -> None:
        """Record the requests that will never be answered."""
        self._lines += [f"{label}: no answer" for label in self._asked.values()]

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        for frame in feed(self._assembler, data):
            self._note(frame)

    @override
    def is_closing(self) -> bool:
        return self._is_closing

    @override
    def close(self) -> None:
        self._is_closing = True
        self._lines.append(f"{self._name}: connection closed")

    @override
    def abort(self) -> None:
        self.close()

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: all written bytes are taken at once."""

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._name if name == "peername" else default

    def _send(self, label: str, kind: FrameKind, body: bytes, flags: int = 0) -> None:
        if self._is_closing:
            return
        self._last_id += 1
        if label:
            self._asked[self._last_id] = label
        data = frame_header(kind, self._last_id, len(body), flags) + body
        room = self._connection.get_buffer(-1)
        room[: len(data)] = data
        self._connection.buffer_updated(len(data))

    def _note(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.ACKS:
                answers = [(each, _name(status)) for each, status in decode_acks(frame.body)]
            case FrameKind.ENTRIES:
                answers = [(frame.request_id, _show_entries(decode_entries(frame.body)))]
            case _:
                reply = decode_reply(frame.body)
                if isinstance(reply, m.LoginReply):
                    self.sasl_message = reply.sasl_message
                answers = [(frame.request_id, _show_reply(reply))]
        for request_id, answer in answers:
            label = self._asked.pop(request_id, None)
            if label is not None:
                self._lines.append(f"{label}: {answer}")


def request_of(ledger_id: LedgerId, words: Sequence[str], options: Mapping[str, str]) -> m.Request:
    match words:
        case ["read", entries, *_]:
            first, last = _range(entries)
            return m.ReadEntries(ledger_id, first, last, BYTES_MAX, "fence" in options)
        case ["lac" | "fence", *_]:
            return m.ReadLac(ledger_id, words[0] == "fence")
        case ["write-lac", lac, *_]:
            return m.WriteLac(ledger_id, EntryId(int(lac)))
        case ["tell-lac", lac, *_]:
            return m.ReportLac(ledger_id, EntryId(int(lac)))
        case ["wait-lac", lac, *_]:
            return m.WaitLac(ledger_id, EntryId(int(lac)), WAIT_MS, BYTES_MAX)
        case _:
            raise ValueError(f"unknown event: {' '.join(words)}")


def hello_of(bookie_id: str, options: Mapping[str, str]) -> m.Hello:
    low, high = int(options.get("low", "1")), int(options.get("high", "1"))
    return m.Hello(bookie_id, low, high, 0, b"", "scenario")


async def fence_without_key(
    server: MemoryMetadataServer, context: ServerContext, lines: list[str], label: str, ledger: int
) -> None:
    """Fence a ledger as repair does, on a separate connection."""
    key = await read_or_create_repair_key(MemoryMetadataStore(server), Random(1))
    wire = Wire(context, lines, label)
    wire.ask("", m.Hello(context.bookie_id, 1, 1, 0, key, "repair"))
    await asyncio.sleep(KEY_READ_S)
    wire.ask(label, m.FenceWithoutKey(LedgerId(ledger)))


def _range(text: str) -> tuple[EntryId, EntryId]:
    first, _dots, last = text.partition("..")
    return EntryId(int(first)), EntryId(int(last))


def batch_of(ledger_id: LedgerId, entries: str, options: Mapping[str, str]) -> bytes:
    first, last = _range(entries)
    payloads = [payload_of(ledger_id, number) for number in range(first, last + 1)]
    if "other" in options:
        payloads = [OTHER_PAYLOAD for _ in payloads]
    data = bytearray(make_batch(ledger_id, first, payloads, lac=int(options.get("lac", "-1"))).data)
    data[-1] ^= "damaged" in options
    return bytes(data)


def _show_reply(reply: m.Reply) -> str:
    match reply:
        case m.HelloReply():
            return " ".join(filter(None, (_name(reply.status), reply.reason, reply.principal)))
        case m.LacReply():
            known = f"lac={reply.lac} highest={reply.highest_entry_id}"
            return f"{_name(reply.status)} {known}{' fenced' if reply.fenced else ''}"
        case m.Refused():
            return f"refused {_name(reply.status)}"
        case m.EntryRanges():
            return " ".join(
                (*(f"{low}..{high}" for low, high in reply.ranges), _name(reply.status))
            )
        case m.LoginReply():
            return " ".join(
                filter(None, ("logged-in" if reply.complete else "go-on", reply.principal))
            )
        case m.AccessReply() | m.RightsReply() | m.Pong():
            raise AssertionError("no event asks for this")


def _show_entries(found: Entries) -> str:
    entries: list[tuple[int, str]] = []
    for batch in found.batches:
        batch.verify_crc()
        batch.verify_digests(batch.header.ledger_id)
        for entry_id, payload in enumerate(batch.payload_views(), batch.header.first_entry_id):
            is_usual = payload == payload_of(batch.header.ledger_id, entry_id)
            entries.append((entry_id, "" if is_usual else "other:"))
    shown = []
    for kind, run in groupby(entries, lambda each: each[1]):
        ids = [entry_id for entry_id, _kind in run]
        shown.append(f"{kind}{ids[0]}..{ids[-1]}")
    return " ".join((*shown, _name(found.status), f"lac={found.lac}"))


def _name(status: m.Status) -> str:
    return status.name.lower()

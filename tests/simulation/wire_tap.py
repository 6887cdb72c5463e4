"""Decoder of the traffic between clients and bookies, which reports it to the checkers.

Leaves judging it to `tests.simulation.checkers`. Bytes that cannot be decoded are left to the two
sides.

Invariants: a request counts as delivered when the bookie has read its last byte. An answer counts
when it is written: from then on, the bookie is bound by it.
"""

import struct
from collections import deque
from typing import Final

import msgpack

from bookie.wire.frames import ADD_RECOVERY, FRAME_HEADER_BYTES, FrameKind
from bookie.wire.messages import Status
from tests.simulation.checkers.checker import Asked, Checkers
from tests.simulation.model import Model
from tests.simulation.transport import Endpoint

_FRAME = struct.Struct("<HBBII")
_BATCH = struct.Struct("<HBBIQQ")
_ENTRIES = struct.Struct("<HHIqq")
_ACK = struct.Struct("<II")

HELLO_REPLY: Final = 64
LAC_REPLY: Final = 65
REFUSED: Final = 68


class ConnectionTap:
    """One connection between a client and a bookie."""

    def __init__(self, number: int, model: Model, checkers: Checkers, far: Endpoint) -> None:
        self.number = number
        self.model = model
        self._checkers = checkers
        self._far = far
        self._bookie_id = ""
        self._asked: dict[int, Asked] = {}
        self._fenced: dict[int, None] = {}

    def on_request(self, code: int, flags: int, request_id: int, body: bytes) -> Asked | None:
        """Record a client's request; return it if its delivery matters."""
        asked: Asked | None = None
        if code == FrameKind.ADD:
            _, _, _, count, ledger_id, first = _BATCH.unpack_from(body)
            recovery = bool(flags & ADD_RECOVERY)
            asked = Asked("add", ledger_id, first, first + count - 1, recovery, body)
        elif code == FrameKind.REQUEST:
            fields = msgpack.unpackb(body)
            match fields:
                case [4, int(ledger_id), bool(fence), *_]:
                    asked = Asked("lac", ledger_id, 0, 0, fence)
                case [6, int(ledger_id), int(first), int(last), _, bool(fence), *_]:
                    asked = Asked("read", ledger_id, first, last, fence)
                case [7, int(ledger_id), int(lac), *_]:
                    asked = Asked("poll", ledger_id, lac + 1, lac + 1, flag=False)
                case _:
                    return None
        if asked is not None:
            self._asked[request_id] = asked
        return asked

    def on_answer(self, code: int, request_id: int, body: bytes) -> None:
        """Record a bookie's answer."""
        if code == FrameKind.ACKS:
            for answered, status in _ACK.iter_unpack(body):
                asked = self._asked.pop(answered, None)
                if asked is not None and asked.kind == "add":
                    self._on_ack(asked, Status(status))
        elif code == FrameKind.ENTRIES:
            asked = self._asked.pop(request_id, None)
            if asked is not None:
                status, _, _, _, next_entry_id = _ENTRIES.unpack_from(body)
                self._on_entries(asked, Status(status), next_entry_id)
        elif code == FrameKind.REPLY:
            fields = msgpack.unpackb(body)
            if fields[0] == HELLO_REPLY:
                self._bookie_id = fields[2]
                if fields[1] == Status.OK:
                    self._checkers.on_greeted(self._bookie_id, self._far.node)
            asked = self._asked.pop(request_id, None)
            if asked is not None and fields[0] in (LAC_REPLY, REFUSED):
                self._on_status(asked, Status(fields[1]), is_lac_reply=fields[0] == LAC_REPLY)

    def _on_ack(self, asked: Asked, status: Status) -> None:
        if status is not Status.OK:
            self._checkers.on_status(self._bookie_id, asked, status)
            return
        key = (self._bookie_id, asked.ledger_id)
        held = self.model.held.get(key)
        if held is None:
            held = self.model.held[key] = {}
        ids = range(asked.first_entry_id, asked.last_entry_id + 1)
        new = [entry_id for entry_id in ids if entry_id not in held]
        now_s = self.model.loop.now_s
        for entry_id in new:
            held[entry_id] = now_s
        self._checkers.on_stored(self._bookie_id, self._far.host, asked, new)

    def _on_entries(self, asked: Asked, status: Status, next_entry_id: int) -> None:
        if asked.flag and status in (Status.OK, Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER):
            self._note_fence(asked.ledger_id)
        if status is Status.NO_SUCH_ENTRY and asked.kind == "read":
            self._checkers.on_negative(self._bookie_id, asked, next_entry_id)
        elif status is Status.NO_SUCH_LEDGER:
            self._checkers.on_negative(self._bookie_id, asked, None)
        elif status is not Status.OK:
            self._checkers.on_status(self._bookie_id, asked, status)

    def _on_status(self, asked: Asked, status: Status, *, is_lac_reply: bool) -> None:
        if is_lac_reply and asked.flag and status is Status.OK:
            self._note_fence(asked.ledger_id)
        if is_lac_reply and status is Status.NO_SUCH_LEDGER:
            self._checkers.on_negative(self._bookie_id, asked, None)
        elif status is not Status.OK:
            self._checkers.on_status(self._bookie_id, asked, status)

    def _note_fence(self, ledger_id: int) -> None:
        if ledger_id not in self._fenced:
            self._fenced[ledger_id] = None
            self._checkers.on_fenced(self._bookie_id, ledger_id)


class _Frames:
    """Splits one direction's bytes into frames."""

    def __init__(self) -> None:
        self._rest = b""
        self.end = 0
        """Offset in the stream behind the last complete frame."""

    def cut(self, data: bytes) -> list[tuple[int, int, int, int, bytes]]:
        """Return (end offset, kind, flags, request id, body) of each frame that is complete now."""
        if self._rest:
            data = self._rest + data
        frames = []
        at, size = 0, len(data)
        while size - at >= FRAME_HEADER_BYTES:
            _, code, flags, request_id, body_bytes = _FRAME.unpack_from(data, at)
            stop = at + FRAME_HEADER_BYTES + body_bytes
            if stop > size:
                break
            self.end += stop - at
            body = data[at + FRAME_HEADER_BYTES : stop]
            frames.append((self.end, code, flags, request_id, body))
            at = stop
        self._rest = data[at:]
        return frames


class ClientTap:
    """Observer of the bytes that a client writes."""

    def __init__(self, connection: ConnectionTap) -> None:
        self._connection = connection
        self._frames = _Frames()
        self._under_way: deque[tuple[int, Asked]] = deque()

    def sent(self, data: bytes) -> None:
        """See `Tap.sent`."""
        connection = self._connection
        connection.model.note_bytes(connection.number, from_bookie=False, data=data)
        for end, code, flags, request_id, body in self._frames.cut(data):
            connection.model.message_count += 1
            asked = connection.on_request(code, flags, request_id, body)
            if asked is not None:
                self._under_way.append((end, asked))

    def delivered(self, total_bytes: int) -> None:
        """See `Tap.delivered`."""
        now_s = self._connection.model.loop.now_s
        while self._under_way and self._under_way[0][0] <= total_bytes:
            self._under_way.popleft()[1].delivered_at_s = now_s


class BookieTap:
    """Observer of the bytes that a bookie writes."""

    def __init__(self, connection: ConnectionTap) -> None:
        self._connection = connection
        self._frames = _Frames()

    def sent(self, data: bytes) -> None:
        """See `Tap.sent`."""
        connection = self._connection
        connection.model.note_bytes(connection.number, from_bookie=True, data=data)
        for _, code, _, request_id, body in self._frames.cut(data):
            connection.model.message_count += 1
            connection.on_answer(code, request_id, body)

    def delivered(self, total_bytes: int) -> None:
        """See `Tap.delivered`."""

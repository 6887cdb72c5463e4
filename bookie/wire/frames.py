"""Cuts a byte stream into frames, and writes frame headers.

Leaves the meaning of a frame's body to `bookie.wire.codec` (control messages) and
`bookie.wire.batch` (entries).

Format of a frame's header, little-endian:

| offset | size | field |
|---|---|---|
| 0 | 2 | magic |
| 2 | 1 | kind (`FrameKind`) |
| 3 | 1 | flags |
| 4 | 4 | request id: chosen by the client, repeated in the answer |
| 8 | 4 | body bytes |

Invariants: a frame's size is checked before anything is allocated for it; what is allocated for a
frame that was only announced is at most `BODY_BYTES_AT_FIRST`, or what the peer sent in one frame
before, up to `BODY_BYTES_TRUSTED_MAX` or what is said; then twice what has arrived.

Source: storage design, "Limits and refusals".
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from bookie.wire.bodies import POOLED_BYTES_MIN, BodyPool
from bookie.wire.errors import FrameError

FRAME_MAGIC: Final = 0x5146
FRAME_HEADER_BYTES: Final = 12
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
FIRST_FRAME_BYTES_MAX: Final = 64 * 1024
RECEIVE_BUFFER_BYTES: Final = 64 * 1024
"""Held by every connection for its whole life; what is larger is received in place."""

REQUEST_BYTES_MAX: Final = 64 * 1024
"""Control messages are small: a bound of their own bounds what their decoder allocates."""

BODY_BYTES_AT_FIRST: Final = 64 * 1024
BODY_BYTES_TRUSTED_MAX: Final = 1024 * 1024 + 64 * 1024
"""A peer that sent a whole large frame is given as much at once for the next, up to this: what
the largest batch of a client with the default limits takes, with its header."""
REQUEST_ID_MODULUS: Final = 2**32

_HEADER = struct.Struct("<HBBII")
assert _HEADER.size == FRAME_HEADER_BYTES


class FrameKind(IntEnum):
    """What a frame's body is."""

    REQUEST = 1
    """A control message (msgpack), client to bookie."""
    REPLY = 2
    """The answer to a control message (msgpack)."""
    ADD = 3
    """One batch to store; flags: `ADD_RECOVERY`."""
    ACKS = 4
    """Answers to adds: pairs of (request id u32, status u32); the frame's own request id is 0."""
    ENTRIES = 5
    """The answer to a read or a long poll: see `bookie.wire.entries`."""


ADD_RECOVERY: Final = 1
"""Flag of an add by a recovery or a repair: it passes the fence (rules 7.4, 9.1)."""

_FLAGS: Final = {FrameKind.ADD: ADD_RECOVERY}
_SIZES: Final = {FrameKind.REQUEST: REQUEST_BYTES_MAX}
_KINDS: Final = {
    int(kind): (kind, _FLAGS.get(kind, 0), _SIZES.get(kind, FRAME_BYTES_MAX)) for kind in FrameKind
}
"""Each kind with the flags that it may have and its largest body."""


class Frame(NamedTuple):
    """One whole frame. The body is owned by whoever holds the frame: it is not used again before
    the last view of it is gone.
    """

    kind: FrameKind
    flags: int
    request_id: int
    body: memoryview


def frame_header(kind: FrameKind, request_id: int, body_bytes: int, flags: int = 0) -> bytes:
    """Return the 12 bytes that go before a body."""
    assert 0 <= body_bytes <= FRAME_BYTES_MAX
    return _HEADER.pack(FRAME_MAGIC, kind, flags, request_id, body_bytes)


class FrameAssembler:
    """Receives a stream into buffers of its own and returns whole frames, for `BufferedProtocol`.

    Small frames are copied out of one receive buffer; of a frame that is larger than what has
    arrived, the rest is received in place, so that a batch is copied at most once in part.
    After a FrameError nothing more may be fed.
    """

    __slots__ = (
        "_bodies",
        "_body",
        "_body_bytes",
        "_body_filled",
        "_buffer",
        "_filled",
        "_limit",
        "_pending",
        "_trusted_bytes",
        "_trusted_bytes_max",
    )

    def __init__(
        self,
        frame_bytes_max: int = FIRST_FRAME_BYTES_MAX,
        bodies: BodyPool | None = None,
        trusted_bytes_max: int = BODY_BYTES_TRUSTED_MAX,
    ) -> None:
        """Take large bodies from a pool, if one is given; they are its again when no view is
        left.
        """
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._filled = 0
        self._limit = frame_bytes_max
        self._pending: tuple[FrameKind, int, int] | None = None
        self._bodies = bodies
        self._body = memoryview(b"")
        self._body_bytes = 0
        self._body_filled = 0
        self._trusted_bytes = BODY_BYTES_AT_FIRST
        self._trusted_bytes_max = trusted_bytes_max

    def allow(self, frame_bytes_max: int) -> None:
        """Raise the limit, once the peer has introduced itself."""
        self._limit = frame_bytes_max

    @property
    def is_mid_frame(self) -> bool:
        """Return whether part of a frame has arrived and the rest has not."""
        return self._filled > 0 or self._pending is not None

    def get_buffer(self) -> memoryview:
        """Return where the next bytes are to be received."""
        if self._pending is not None:
            return self._body[self._body_filled :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> list[Frame]:
        """Take note of `count` received bytes; return the frames now whole. Raises FrameError."""
        if self._pending is None:
            self._filled += count
            return self._cut()
        self._body_filled += count
        if self._body_filled < len(self._body):
            return []
        if self._body_filled < self._body_bytes:
            self._grow_body()
            return []
        kind, flags, request_id = self._pending
        if self._body_bytes > self._trusted_bytes:
            self._trusted_bytes = min(self._body_bytes, self._trusted_bytes_max)
        frame = Frame(kind, flags, request_id, self._body)
        self._pending, self._body = None, memoryview(b"")
        return [frame]

    def _cut(self) -> list[Frame]:
        frames: list[Frame] = []
        buffer, filled, start = self._buffer, self._filled, 0
        view = memoryview(buffer)
        while filled - start >= FRAME_HEADER_BYTES:
            kind, flags, request_id, size = self._parse_header(start)
            start += FRAME_HEADER_BYTES
            arrived = filled - start
            if size > arrived:
                self._pending = (kind, flags, request_id)
                self._body = self._new_body(min(size, max(self._trusted_bytes, 2 * arrived)))
                self._body[:arrived] = view[start:filled]
                self._body_bytes, self._body_filled = size, arrived
                start = filled
                break
            stop = start + size
            frames.append(Frame(kind, flags, request_id, memoryview(bytes(view[start:stop]))))
            start = stop
        rest = filled - start
        if rest and start:
            buffer[:rest] = buffer[start:filled]
        self._filled = rest
        return frames

    def _parse_header(self, offset: int) -> tuple[FrameKind, int, int, int]:
        magic, code, flags, request_id, size = _HEADER.unpack_from(self._buffer, offset)
        known = _KINDS.get(code)
        if magic != FRAME_MAGIC or known is None:
            raise FrameError(f"not a frame: magic {magic:#06x}, kind {code}")
        kind, flags_known, size_max = known
        if flags & ~flags_known:
            raise FrameError(f"unknown flags {flags:#04x} of a frame of kind {kind.name}")
        if size > size_max or size > self._limit:
            limit = min(self._limit, size_max)
            raise FrameError(f"a frame of {size} bytes is over the limit of {limit}")
        return kind, flags, request_id, size

    def _grow_body(self) -> None:
        # The filled part moves to a new buffer: a transport may still hold a view of the old one.
        grown = self._new_body(min(self._body_bytes, 2 * len(self._body)))
        grown[: self._body_filled] = self._body
        self._body = grown

    def _new_body(self, size: int) -> memoryview:
        if self._bodies is None or size < POOLED_BYTES_MIN:
            return memoryview(bytearray(size))
        return self._bodies.take(size)

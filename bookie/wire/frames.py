"""Decoder of a byte stream into frames, encoder of frame headers, and the buffers of large frames.

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

Invariants: a frame's size is checked before memory is allocated for it; the first allocation for an
announced frame is at most `BODY_BYTES_AT_FIRST`, or the size of the largest earlier frame of the
peer up to `trusted_bytes_max`, or twice the bytes that have arrived; later allocations double it.

Source: storage design, "Limits and refusals".
"""

import struct
from collections import deque
from enum import IntEnum
from typing import Final, NamedTuple

from bookie.wire.errors import FrameError

FRAME_MAGIC: Final = 0x5146
FRAME_HEADER_BYTES: Final = 12
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
FIRST_FRAME_BYTES_MAX: Final = 64 * 1024
RECEIVE_BUFFER_BYTES: Final = 64 * 1024
"""Size of the buffer that every connection keeps. Larger frames are received in place."""

REQUEST_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a control message, which limits the memory of its decoder."""

BODY_BYTES_AT_FIRST: Final = 64 * 1024
BODY_BYTES_TRUSTED_MAX: Final = 1024 * 1024 + 64 * 1024
"""Maximum size of the first allocation for a frame of a peer that has sent a complete frame of that
size. It fits the largest batch, with its header, of a client with default limits.
"""
REQUEST_ID_MODULUS: Final = 2**32

_HEADER = struct.Struct("<HBBII")
assert _HEADER.size == FRAME_HEADER_BYTES


class FrameKind(IntEnum):
    """Kind of a frame, which says what its body is."""

    REQUEST = 1
    """A control message (msgpack), client to bookie."""
    REPLY = 2
    """Answer to a control message (msgpack)."""
    ADD = 3
    """One batch to store; flags: `ADD_RECOVERY`."""
    ACKS = 4
    """Answers to adds: pairs of (request id u32, status u32); the frame's own request id is 0."""
    ENTRIES = 5
    """Answer to a read or a long poll: see `bookie.wire.codec`."""


ADD_RECOVERY: Final = 1
"""Flag of an add by a recovery or a repair: it passes the fence (rules 7.4, 9.1)."""

_FLAGS: Final = {FrameKind.ADD: ADD_RECOVERY}
_SIZES: Final = {FrameKind.REQUEST: REQUEST_BYTES_MAX}
_KINDS: Final = {
    int(kind): (kind, _FLAGS.get(kind, 0), _SIZES.get(kind, FRAME_BYTES_MAX)) for kind in FrameKind
}
"""Each kind with its allowed flags and its largest body."""


class Frame(NamedTuple):
    """One complete frame. Its body belongs to the holder of the frame: the buffer is not reused
    before the last view of it is released.
    """

    kind: FrameKind
    flags: int
    request_id: int
    body: memoryview


def frame_header(kind: FrameKind, request_id: int, body_bytes: int, flags: int = 0) -> bytes:
    """Return the 12 header bytes for a body."""
    assert 0 <= body_bytes <= FRAME_BYTES_MAX
    return _HEADER.pack(FRAME_MAGIC, kind, flags, request_id, body_bytes)


POOLED_BYTES_MIN: Final = 128 * 1024
"""Minimum size of a pooled body. Smaller ones are cheap to create."""
ROUNDED_TO_BYTES: Final = 16 * 1024
WASTE_SHARE_MAX: Final = 0.25
"""Maximum unused part of a lent buffer, as a share of the body's size."""
CHECKED_MAX: Final = 4
"""Number of the oldest buffers that are checked: they become free approximately in the order in
which they were lent.
"""


class BodyPool:
    """Buffers of all connections to one bookie, for one event loop, used again: a new buffer of a
    megabyte costs more than receiving into it, because it is cleared and its pages are allocated.

    Invariants: a lent buffer has one user; a pool keeps at most its limit of bytes. Above the
    limit it drops its oldest buffers, and does not wait until they are free.
    """

    __slots__ = ("_bytes", "_bytes_max", "_lent")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lent: deque[bytearray] = deque()

    def new(self, size: int) -> memoryview:
        """Return a view of `size` bytes of any content, from the pool if they are many."""
        return memoryview(bytearray(size)) if size < POOLED_BYTES_MIN else self.take(size)

    def grow(self, body: memoryview, bytes_max: int) -> memoryview:
        """Return a copy of a body with room for twice its size, at most `bytes_max`. The old one is
        not resized: a transport may still have a view of it.
        """
        grown = self.new(min(bytes_max, 2 * len(body)))
        grown[: len(body)] = body
        return grown

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes of any content. They are lent until this view and all views
        made from it are released.
        """
        for _ in range(min(CHECKED_MAX, len(self._lent))):
            body = self._lent.popleft()
            if not _is_free(body):
                self._lent.appendleft(body)
                break
            if size <= len(body) <= (1 + WASTE_SHARE_MAX) * size:
                self._lent.append(body)
                return memoryview(body)[:size]
            self._bytes -= len(body)
        body = bytearray(-(-size // ROUNDED_TO_BYTES) * ROUNDED_TO_BYTES)
        self._bytes += len(body)
        self._lent.append(body)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._lent.popleft())
        return memoryview(body)[:size]


def _is_free(body: bytearray) -> bool:
    """Return whether no view of a buffer is left: a buffer with views cannot change its size."""
    try:
        last = body.pop()
    except BufferError:
        return False
    body.append(last)
    return True


class FrameAssembler:
    """Assembler of frames from a received stream, with its own buffers, for `BufferedProtocol`.

    Small frames are copied from one receive buffer. The rest of a frame that has not arrived
    completely is received in place, so that at most a part of a batch is copied, once. After a
    FrameError the assembler must not be used.
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
        """`bodies`: pool from which large bodies are taken; it reuses a body when no view of it is
        left.
        """
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._filled = 0
        self._limit = frame_bytes_max
        self._pending: tuple[FrameKind, int, int] | None = None
        self._bodies = bodies or BodyPool(0)
        self._body = memoryview(b"")
        self._body_bytes = 0
        self._body_filled = 0
        self._trusted_bytes = BODY_BYTES_AT_FIRST
        self._trusted_bytes_max = trusted_bytes_max

    def allow(self, frame_bytes_max: int) -> None:
        """Raise the limit, after the peer's hello."""
        self._limit = frame_bytes_max

    @property
    def is_mid_frame(self) -> bool:
        """Whether a part of a frame has arrived and the rest has not."""
        return self._filled > 0 or self._pending is not None

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next received bytes."""
        if self._pending is not None:
            return self._body[self._body_filled :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> list[Frame]:
        """Process `count` received bytes; return the frames that are now complete. Raises
        FrameError.
        """
        if self._pending is None:
            self._filled += count
            return self._cut()
        self._body_filled += count
        if self._body_filled < len(self._body):
            return []
        if self._body_filled < self._body_bytes:
            self._body = self._bodies.grow(self._body, self._body_bytes)
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
                self._body = self._bodies.new(min(size, max(self._trusted_bytes, 2 * arrived)))
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

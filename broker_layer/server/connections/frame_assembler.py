"""Cuts one client's byte stream into the frames of Kafka's protocol.

Leaves what is in a frame to `kafka.frames`, and buffers of large frames to `bookie.wire.bodies`.

Format: size i32, big-endian, of what follows; then so many bytes.

Invariants: a frame's size is checked before anything is allocated for it; what is allocated for a
frame that was only announced is at most BODY_BYTES_AT_FIRST, or what the peer sent in one frame
before, up to BODY_BYTES_TRUSTED_MAX; then twice what has arrived. Between two calls the receive
buffer, which connections share, holds nothing.

Source: Kafka's protocol guide, section "Protocol Primitive Types" and "Common Request Structure".
"""

import struct
from typing import Final

from bookie.wire.bodies import POOLED_BYTES_MIN, BodyPool
from broker_layer.kafka.errors import FrameError

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
SIZE_BYTES: Final = 4
FRAME_BYTES_MIN: Final = 8
"""API key, version and correlation id."""
BODY_BYTES_AT_FIRST: Final = 256 * 1024
BODY_BYTES_TRUSTED_MAX: Final = 1024 * 1024 + 64 * 1024
"""A peer that sent a whole large frame is given as much at once for the next, up to this."""

_SIZE: Final = struct.Struct(">i")
_NOTHING: Final = memoryview(b"")


class FrameAssembler:
    """Receives a stream and returns whole frames, for `asyncio.BufferedProtocol`.

    Frames that arrive whole are copied out of the shared receive buffer; of a frame that is larger
    than what has arrived, the rest is received in place. After a FrameError nothing may be fed.
    """

    __slots__ = (
        "_bodies",
        "_body",
        "_body_bytes",
        "_body_filled",
        "_frame_bytes_max",
        "_head",
        "_receive_buffer",
        "_trusted_bytes",
    )

    def __init__(self, receive_buffer: bytearray, frame_bytes_max: int, bodies: BodyPool) -> None:
        """`receive_buffer` may be shared with every connection of this loop."""
        self._receive_buffer = receive_buffer
        self._frame_bytes_max = frame_bytes_max
        self._bodies = bodies
        self._head = b""
        """The first bytes of a size that has not arrived whole."""
        self._body = _NOTHING
        self._body_bytes = 0
        """The size of the frame under way; 0: none is."""
        self._body_filled = 0
        self._trusted_bytes = BODY_BYTES_AT_FIRST

    @property
    def is_mid_frame(self) -> bool:
        """Tell whether part of a frame has arrived and the rest has not."""
        return self._body_bytes > 0 or bool(self._head)

    @property
    def announced_bytes(self) -> int:
        """The size of the frame that has arrived in part; 0 between frames."""
        return self._body_bytes

    @property
    def arrived_bytes(self) -> int:
        """How much of that frame has arrived."""
        return self._body_filled

    def get_buffer(self) -> memoryview:
        """Return where the next bytes are to be received."""
        if self._body_bytes:
            if self._body_filled == len(self._body):
                self._grow_body()
            return self._body[self._body_filled :]
        head = self._head
        if head:
            self._receive_buffer[: len(head)] = head
            return memoryview(self._receive_buffer)[len(head) :]
        return memoryview(self._receive_buffer)

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Take note of `count` received bytes; return the frames now whole, each its holder's own.

        Raises FrameError.
        """
        if not self._body_bytes:
            return self._cut(count + len(self._head))
        self._body_filled += count
        if self._body_filled < self._body_bytes:
            return []
        if self._body_bytes > self._trusted_bytes:
            self._trusted_bytes = min(self._body_bytes, BODY_BYTES_TRUSTED_MAX)
        frame = self._body
        self._body, self._body_bytes, self._body_filled = _NOTHING, 0, 0
        return [frame]

    def _cut(self, filled: int) -> list[memoryview]:
        frames: list[memoryview] = []
        received, start = self._receive_buffer, 0
        while filled - start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(received, start)
            if not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
                raise FrameError(
                    f"a frame of {size} B; allowed are {FRAME_BYTES_MIN} to {self._frame_bytes_max}"
                )
            start += SIZE_BYTES
            end = start + size
            if end > filled:
                self._begin_body(size, start, filled)
                start = filled
                break
            frames.append(memoryview(received[start:end]))
            start = end
        self._head = bytes(received[start:filled])
        return frames

    def _begin_body(self, size: int, start: int, filled: int) -> None:
        arrived = filled - start
        self._body = self._new_body(min(size, max(self._trusted_bytes, 2 * arrived)))
        self._body[:arrived] = memoryview(self._receive_buffer)[start:filled]
        self._body_bytes, self._body_filled = size, arrived

    def _grow_body(self) -> None:
        # The filled part moves to a new buffer: a transport may still hold a view of the old one.
        grown = self._new_body(min(self._body_bytes, 2 * len(self._body)))
        grown[: self._body_filled] = self._body
        self._body = grown

    def _new_body(self, size: int) -> memoryview:
        return memoryview(bytearray(size)) if size < POOLED_BYTES_MIN else self._bodies.take(size)

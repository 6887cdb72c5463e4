"""Assembly of the frames of Kafka's protocol from one client's byte stream.

Leaves the contents of a frame to `kafka.frames`, and buffers of large frames to
`bookie.wire.frames`.

Format: size i32, big-endian, of the bytes that follow; then those bytes.

Invariants: a frame's size is checked before memory is allocated for it. The first allocation for an
announced frame is at most BODY_BYTES_AT_FIRST, or the size of an earlier frame of the peer up to
BODY_BYTES_TRUSTED_MAX, or twice the bytes that have arrived. Between two calls the receive buffer,
which connections share, is empty.

Source: Kafka's protocol guide, section "Protocol Primitive Types" and "Common Request Structure".
"""

import struct
from typing import Final

from bookie.wire.frames import BodyPool
from broker_layer.kafka.errors import KafkaFrameError

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
SIZE_BYTES: Final = 4
FRAME_BYTES_MIN: Final = 8
"""API key, version and correlation id."""
BODY_BYTES_AT_FIRST: Final = 256 * 1024
BODY_BYTES_TRUSTED_MAX: Final = 1024 * 1024 + 64 * 1024
"""Maximum first allocation for a peer that has sent a complete frame of that size."""

_SIZE: Final = struct.Struct(">i")
_NOTHING: Final = memoryview(b"")


class KafkaFrameAssembler:
    """Receiver of a byte stream that returns complete frames, for `asyncio.BufferedProtocol`.

    Frames that arrive complete are copied out of the shared receive buffer. For a frame that has
    arrived in part, the rest is received in place. Do not use the assembler after a
    KafkaFrameError.
    """

    __slots__ = (
        "_bodies",
        "_body",
        "_body_bytes",
        "_body_filled",
        "_head",
        "_receive_buffer",
        "_trusted_bytes",
        "frame_bytes_max",
    )

    def __init__(self, receive_buffer: bytearray, frame_bytes_max: int, bodies: BodyPool) -> None:
        """`receive_buffer` may be shared with every connection of this loop."""
        self._receive_buffer = receive_buffer
        self.frame_bytes_max = frame_bytes_max
        """Largest size of the next frames."""
        self._bodies = bodies
        self._head = b""
        """The first bytes of a size field that has arrived in part."""
        self._body = _NOTHING
        self._body_bytes = 0
        """The size of the frame that has arrived in part; 0 if there is none."""
        self._body_filled = 0
        self._trusted_bytes = BODY_BYTES_AT_FIRST

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame has arrived in part."""
        return self._body_bytes > 0 or bool(self._head)

    @property
    def announced_bytes(self) -> int:
        """The size of the frame that has arrived in part; 0 between frames."""
        return self._body_bytes

    @property
    def arrived_bytes(self) -> int:
        """The number of bytes of that frame that have arrived."""
        return self._body_filled

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._body_bytes:
            if self._body_filled == len(self._body):
                self._body = self._bodies.grow(self._body, self._body_bytes)
            return self._body[self._body_filled :]
        head = self._head
        if head:
            self._receive_buffer[: len(head)] = head
            return memoryview(self._receive_buffer)[len(head) :]
        return memoryview(self._receive_buffer)

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Process `count` received bytes; return the frames that are now complete.

        The caller owns the returned buffers. Raises KafkaFrameError.
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
            if not FRAME_BYTES_MIN <= size <= self.frame_bytes_max:
                raise KafkaFrameError(
                    f"a request's frame has {size} B, and {FRAME_BYTES_MIN} to"
                    f" {self.frame_bytes_max} B are allowed: send smaller requests, or raise"
                    " frame_bytes_max; a client of another protocol must use another port"
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
        self._body = self._bodies.new(min(size, max(self._trusted_bytes, 2 * arrived)))
        self._body[:arrived] = memoryview(self._receive_buffer)[start:filled]
        self._body_bytes, self._body_filled = size, arrived

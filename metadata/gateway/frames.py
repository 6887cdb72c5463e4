"""Frames of a gateway's connection: a length, and as many bytes. Pure.

Leaves the content to `codec.py`.

Format: the length as an unsigned 32-bit number, big-endian, then the body. A body has at least one
byte.

Invariants: a length over the limit is refused before its body is received; what is kept is at most
what has arrived. After an error the assembler must not be used.

Source: docs/formats.md, "Connections to a gateway".
"""

from typing import Final

from metadata.gateway.errors import GatewayFormatError

LENGTH_BYTES: Final = 4
HELLO_BYTES_MAX: Final = 4 * 1024
"""Maximum body of a frame before the hello is answered."""
REQUEST_BYTES_MAX: Final = 1024 * 1024
"""Maximum body of a later request. It fits the largest value, and the largest multi."""
REPLY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum body of a reply: a list of names can be longer than a value."""


def framed(body: bytes) -> bytes:
    """Return a body with its length."""
    return len(body).to_bytes(LENGTH_BYTES) + body


class FrameAssembler:
    """Cuts a received stream into bodies."""

    def __init__(self, body_bytes_max: int) -> None:
        self._limit = body_bytes_max
        self._data = bytearray()

    def allow(self, body_bytes_max: int) -> None:
        """Change the limit of the bodies that follow."""
        self._limit = body_bytes_max

    @property
    def is_mid_frame(self) -> bool:
        """Whether a part of a frame has arrived and the rest has not."""
        return bool(self._data)

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """Add received bytes; return the bodies that are now complete. Raises
        GatewayFormatError.
        """
        self._data += data
        bodies, start = list[bytes](), 0
        while len(self._data) - start >= LENGTH_BYTES:
            size = int.from_bytes(self._data[start : start + LENGTH_BYTES])
            if not 0 < size <= self._limit:
                raise GatewayFormatError(f"a frame of {size} B is not of 1 to {self._limit} B")
            end = start + LENGTH_BYTES + size
            if end > len(self._data):
                break
            bodies.append(bytes(self._data[start + LENGTH_BYTES : end]))
            start = end
        del self._data[:start]
        return bodies

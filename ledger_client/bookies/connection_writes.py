"""Queue of frames for a transport: frames of one loop iteration are joined, large ones are sent in
pieces.

Leaves the content of the frames to `ledger_client.bookies.connection`.

Invariants: bytes leave in the order of the calls; a transport receives little more than its socket
accepts, because it would copy the rest; a frame's buffer is kept, never copied as one.

Source: storage design, "The batch".
"""

import asyncio
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from bookie.wire.batch import Buffer

PIECE_BYTES: Final = 256 * 1024
JOINED_BYTES_MAX: Final = 32 * 1024
"""Maximum size of parts that are joined with their neighbours: below it, a copy is cheaper than a
call.
"""
TRANSPORT_BYTES_HIGH: Final = 256 * 1024
TRANSPORT_BYTES_LOW: Final = 64 * 1024


@dataclass(eq=False, repr=False, slots=True)
class ConnectionWrites:
    """Bytes that wait to be sent over one connection."""

    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport | None = field(default=None, init=False)
    _parts: deque[Buffer] = field(default_factory=deque, init=False)
    _size: int = field(default=0, init=False)
    _are_all_small: bool = field(default=True, init=False)
    _is_flush_due: bool = field(default=False, init=False)
    is_paused: bool = field(default=False, init=False)
    """Whether the socket accepts no bytes."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the socket has not accepted yet."""
        if self._transport is None:
            return self._size
        return self._size + self._transport.get_write_buffer_size()

    def attach(self, transport: asyncio.Transport) -> None:
        """Send through this transport from now on."""
        transport.set_write_buffer_limits(TRANSPORT_BYTES_HIGH, TRANSPORT_BYTES_LOW)
        self._transport = transport

    def send(self, header: bytes, body: Buffer, *, at_once: bool) -> None:
        """Send a frame, at once or with all others of this loop iteration. Its body must not be
        changed afterwards.
        """
        size = len(body)
        self._parts += (header, body)
        self._size += len(header) + size
        if size > JOINED_BYTES_MAX:
            self._are_all_small = False
        if at_once:
            self._flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def pause(self) -> None:
        """Stop writing to the transport."""
        self.is_paused = True

    def resume(self) -> None:
        """Continue writing to the transport."""
        self.is_paused = False
        self._flush()

    def stop(self) -> None:
        """Drop everything; send nothing any more."""
        self._parts.clear()
        self._size = 0
        self._transport = None

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        while transport is not None and self._parts and not self.is_paused:
            piece = self._next_piece()
            self._size -= len(piece)
            transport.write(piece)
        self._are_all_small = self._are_all_small or not self._parts

    def _next_piece(self) -> Buffer:
        """Return small parts joined, or one piece of a large part."""
        parts = self._parts
        if self._are_all_small and self._size <= PIECE_BYTES:
            whole = b"".join(parts)
            parts.clear()
            return whole
        if len(parts[0]) > JOINED_BYTES_MAX:
            part = memoryview(parts.popleft())
            if len(part) > PIECE_BYTES:
                parts.appendleft(part[PIECE_BYTES:])
            return part[:PIECE_BYTES]
        joined: list[Buffer] = []
        size = 0
        while parts and len(parts[0]) <= JOINED_BYTES_MAX and size < PIECE_BYTES:
            size += len(parts[0])
            joined.append(parts.popleft())
        return b"".join(joined)


def set_socket_options(transport: asyncio.Transport) -> None:
    """Send small frames at once, and notice a peer that is gone."""
    found: object = transport.get_extra_info("socket")
    if found is None:
        return  # a simulated network
    set_option = getattr(found, "setsockopt", None)
    assert set_option is not None
    set_option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    family: object = getattr(found, "family", None)
    if family in (socket.AF_INET, socket.AF_INET6):
        set_option(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

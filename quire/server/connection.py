"""Server's end of one client's connection: pauses of reading, deadlines, and the end.

Invariants: nothing is read while there is a reason to pause, at least while the client does not
read its answers; the frames that came at once are served for FRAMES_S in a pass of the loop, and
the rest in later passes, one connection after the other.
"""

import asyncio
import socket
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Flag, auto
from typing import Final, cast

from quire.identity.shares import QueueFullError, network_of
from quire.server.connection_context import LARGE_BYTES, ConnectionContext, plain_address
from quire.server.overriding import override

KEEPALIVE_IDLE_S: Final = 30
KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 3
FRAMES_S: Final = 0.0015
"""Time after which the rest of the frames that came at once waits for a later pass of the loop: a
buffer has room for thousands of small requests. uvloop counts whole milliseconds, so it is one or
two.
"""
NO_ROOM: Final = "answers are not read, and room for them is short"
_VERSION: Final = tuple(sys.version_info[:3])
MISSES_PAUSE: Final = (3, 12) <= _VERSION < (3, 12, 9) or (3, 13) <= _VERSION < (3, 13, 2)


class Pause(Flag):
    """Reasons why no request is read from a client."""

    NONE = 0
    REQUESTS_WAIT = auto()
    ANSWERS_UNREAD = auto()
    HANDLER_FULL = auto()
    MEMORY_FULL = auto()
    FRAME_WAITS = auto()
    FRAMES_LEFT = auto()
    THROTTLED = auto()
    CLOSING = auto()


class ServerConnection(asyncio.BufferedProtocol, ABC):
    """Server's end of one connection, from accept to loss.

    Nothing is read while there is a reason to pause, at least while the client does not read its
    answers; the frames that came at once are served for FRAMES_S in a pass of the loop, and the
    rest in later passes, one connection after the other.
    """

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._transport: asyncio.Transport | None = None
        self.address = ""
        """Address of the client, without its port."""
        self.network = ""
        """What that address counts as, for a client without a principal."""
        self._pause = Pause.NONE
        self._waiting_since_s = 0.0
        """Start of the wait for the client: to send a request, to finish a frame, or to read
        answers.
        """
        self._throttle_end: asyncio.TimerHandle | None = None
        self._room = context.room_for(lambda: self.holder)
        self._left: deque[Iterator[None]] = deque()
        """Services of frames that have not ended."""
        self._serving: asyncio.Task[None] | None = None

    # -- called by the transport

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        _tune(transport)
        # Event loops other than asyncio's own bring transports that do not inherit from Transport.
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.address = plain_address(str(name[0])) if name else "unknown"
        self.network = network_of(self.address)
        self._waiting_since_s = self._context.now()
        self._transport.set_write_buffer_limits(self._context.limits.write_buffer_bytes_max)
        self._context.connection_made(self)

    @override
    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._transport = None
        if self._throttle_end is not None:
            self._throttle_end.cancel()
        self._room.close()
        self._left.clear()
        if self._serving is not None:
            self._serving.cancel()
        self._context.connection_lost(self)

    @override
    def pause_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._waiting_since_s = self._context.now()
        self.set_pause(Pause.ANSWERS_UNREAD, on=True)

    @override
    def resume_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        self.count_unsent()
        self.set_pause(Pause.ANSWERS_UNREAD, on=False)

    # -- called by the server

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no request waits for an answer that can be sent now."""

    @abstractmethod
    def note_closing(self) -> None:
        """Prepare for the end: the server is closing, and waits until the connection is idle."""

    @abstractmethod
    def _overdue_request(self, waited_s: float) -> str | None:
        """Return what part of a request should have come within `waited_s`, or None."""

    @property
    def unread_bytes(self) -> int:
        """Number of sent bytes that the client's socket has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def holder(self) -> str:
        """Who holds the room of the connection's answers: a principal, or a network."""
        return self.network

    def count_unsent(self) -> None:
        """Count the unsent bytes, when some of them may have been sent."""
        if not self._room.is_empty:
            self._room.settle(self.unread_bytes)

    @property
    def has_frames_left(self) -> bool:
        """Whether frames have arrived that are not served yet."""
        return bool(self._left)

    def serve_in_turns(self, service: Iterator[None]) -> None:
        """Serve frames, one with each step of `service`: for a while now, the rest in turns with
        other connections.
        """
        if not self._left and _has_ended(service, self._context.now):
            return
        self._left.append(service)
        if self._serving is None:
            self.set_pause(Pause.FRAMES_LEFT, on=True)
            self._serving = asyncio.get_running_loop().create_task(self._serve_left())

    async def _serve_left(self) -> None:
        try:
            await self._context.turns.run(self.holder, self._serve_one_by_one(), LARGE_BYTES)
        except QueueFullError as error:
            self.drop("too many requests", str(error))
        except Exception as error:  # noqa: BLE001 - affects only this connection
            self._context.counters.requests_failed += 1
            self._context.log.failure("request failed", error)
            self.abort()
        self._serving = None
        self.set_pause(Pause.FRAMES_LEFT, on=False)

    async def _serve_one_by_one(self) -> None:
        while self._left:
            if _has_ended(self._left[0], self._context.now) and self._left:
                self._left.popleft()
            await asyncio.sleep(0)

    def note_written(self, reserved: int = 0) -> None:
        """Count the unsent bytes after an answer that `reserved` bytes were reserved for; drop a
        client that has no room for them.
        """
        unsent = self.unread_bytes
        if not (unsent or reserved) and self._room.is_empty:
            return
        if self._room.settle(unsent, reserved):
            return
        self._context.count_unsent()
        if not self._room.settle(unsent, reserved):
            self._room.release(reserved)
            self.drop("peer overdue", NO_ROOM)

    def overdue(self, now_s: float) -> str | None:
        """Return what the client should have done before a deadline that has passed, or None."""
        waited_s = now_s - self._waiting_since_s
        if self._pause & Pause.ANSWERS_UNREAD:
            limits = self._context.limits
            if waited_s > limits.write_stall_s:
                return "answers are not read"
            is_crowded = self._context.unsent.is_waited_for
            return NO_ROOM if is_crowded and waited_s > limits.write_stall_crowded_s else None
        return self._overdue_request(waited_s)

    def check_deadlines(self, now_s: float) -> None:
        """Disconnect a client that missed a deadline."""
        self.count_unsent()
        why = self.overdue(now_s)
        if why is not None:
            self.drop("peer overdue", why)

    def drop(self, event: str, why: str) -> None:
        """Disconnect, with a line in the log unless the connection is closing already."""
        transport = self._transport
        if transport is None:
            return
        if not transport.is_closing():
            self._context.counters.peers_dropped += 1
            self._context.log.warning(event, **self._origin(), reason=why)
        transport.abort()

    def close(self) -> None:
        """Close the connection after everything written was sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def set_pause(self, reason: Pause, *, on: bool) -> None:
        """Set or remove a reason to pause; pause reading at the first, resume it after the last."""
        before = self._pause
        self._pause = before | reason if on else before & ~reason
        transport = self._transport
        if transport is None or transport.is_closing() or bool(before) == bool(self._pause):
            return
        if self._pause:
            self._context.counters.reading_paused += 1
            transport.pause_reading()
        else:
            self._waiting_since_s = self._context.now()
            transport.resume_reading()

    def throttle(self, delay_s: float) -> None:
        """Read nothing for `delay_s` seconds, because the client is over a quota."""
        if delay_s <= 0 or self._transport is None:
            return
        self.set_pause(Pause.THROTTLED, on=True)
        loop, ending = asyncio.get_running_loop(), self._throttle_end
        if ending is not None:
            if ending.when() >= loop.time() + delay_s:
                return
            ending.cancel()  # of requests that came together, the longest pause holds
        self._throttle_end = loop.call_later(delay_s, self._end_throttle)

    def _end_throttle(self) -> None:
        self._throttle_end = None
        self.set_pause(Pause.THROTTLED, on=False)

    def _drop_bad_frame(self, why: str) -> None:
        self._context.counters.bad_frames += 1
        self.drop("bad frame", why)

    def _origin(self) -> dict[str, object]:
        """Return the fields that name the client in the log."""
        peer = "gone" if self._transport is None else self._transport.get_extra_info("peername")
        return {"peer": str(peer)}


def _has_ended(service: Iterator[None], now: Callable[[], float]) -> bool:
    """Let a service make steps for FRAMES_S; return whether it has none left."""
    end_s = now() + FRAMES_S
    return all(now() < end_s for _ in service)


def _tune(transport: asyncio.BaseTransport) -> None:
    """Set a TCP connection's options so that answers are sent at once and a lost client is
    detected.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPALIVE", KEEPALIVE_IDLE_S),  # the same, as macOS calls it
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def write_all(
    transport: asyncio.WriteTransport,
    buffers: Sequence[bytes | bytearray | memoryview],
    buffer_bytes_max: int,
) -> None:
    """Write all buffers at once to a transport with this limit; some may be empty.

    A transport whose buffer is above its limit has called `pause_writing` of its protocol; no
    transport gets an empty buffer. From Python 3.12 on a transport keeps an empty buffer that comes
    last: until the next write it is ready to write all the time, and `close` does not end it.
    Source: CVE-2024-12254: `writelines` of asyncio's own transports does not check the buffer's
    limit in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1. Setting the limits checks the buffer again.
    Measured on Python 3.12.1 and 3.13.0: `_adjust_leftover_buffer` stops before an empty buffer.
    """
    transport.writelines([buffer for buffer in buffers if len(buffer)])
    if MISSES_PAUSE:
        transport.set_write_buffer_limits(buffer_bytes_max)

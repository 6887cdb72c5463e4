"""Connections of a simulated network: a pair of endpoints that behaves like two TCP sockets.

Leaves delays, cuts and listening ports to `tests.simulation.network`.

Invariants: bytes arrive in order, each once, or the connection is lost. The split into reads is
drawn. A protocol gets no call after its `connection_lost`. A node's protocol is called only in its
own context, so that a killed node gets no calls and a paused one gets them later.
Source: assurance design; reliability design, "Network faults".
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Protocol

from typing_extensions import override  # `typing` has it from 3.12 on

from tests.simulation.loop import NODE, SimulationLoop

if TYPE_CHECKING:
    from tests.simulation.network import Network

SOCKET_BYTES: Final = 64 * 1024
"""Bytes of a connection that the kernels accept before `write` keeps the rest."""
WRITE_BYTES_HIGH: Final = 64 * 1024

FINISH: Final = b"finish"
RESET: Final = b"reset"
Buffer = bytes | bytearray | memoryview


class Tap(Protocol):
    """Observes the bytes of one direction of a connection, when written and when delivered."""

    def sent(self, data: bytes) -> None:
        """Record bytes that were written."""

    def delivered(self, total_bytes: int) -> None:
        """Record how many bytes the receiver has read since the connection began."""


class Endpoint(asyncio.Transport):
    """One side of a connection."""

    def __init__(
        self, network: "Network", context: Context, host: str, address: tuple[str, int]
    ) -> None:
        super().__init__({"peername": address})
        self.host = host
        self.node = context.get(NODE, 0)
        self.context = context
        self.peer: Endpoint | None = None
        self.tap: Tap | None = None
        """Observer of the bytes written here."""
        self.stalled_until_s = 0.0
        self.is_lost = False
        self.is_connecting = False
        """Whether this side opened the connection."""
        self.is_silent = False
        """Whether this side is dead without a reset: its machine does not answer what arrives."""
        self._network = network
        self._loop: SimulationLoop = network.loop
        self._protocol: Any = None
        self._queue: deque[tuple[float, bytes]] = deque()
        self._unread_bytes = 0
        self._delivered_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._last_due_s = 0.0
        self._inbox = bytearray()
        self._has_finished = False
        self._settling_turns = 2
        self._reads_again: asyncio.Handle | None = None
        self._is_reading = True
        self._is_closing = False
        self._is_writing_paused = False
        self._high = WRITE_BYTES_HIGH
        self._low = WRITE_BYTES_HIGH // 4

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect a protocol, in the node's own context."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._call_soon(self._settle)
        if self._inbox or self._has_finished:
            self._read_soon(0.0)

    def _settle(self) -> None:
        self._settling_turns -= 1
        if self._settling_turns:
            self._call_soon(self._settle)

    # -- called by protocols

    @override
    def write(self, data: Buffer) -> None:
        if self._is_closing or self.is_lost or not data:
            return
        copied = bytes(data)
        if self.tap is not None:
            self.tap.sent(copied)
        self._unread_bytes += len(copied)
        self._send(copied)
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    @override
    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    @override
    def close(self) -> None:
        if not self._is_closing and not self.is_lost:
            self._is_closing = True
            self._send(FINISH)
            self._call_soon(lambda: self.lose(None))

    @override
    def abort(self) -> None:
        if not self.is_lost:
            self._is_closing = True
            self._queue.clear()
            self._send(RESET)
            self._call_soon(lambda: self.lose(None))

    @override
    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BYTES_HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    @override
    def get_write_buffer_size(self) -> int:
        return max(0, self._unread_bytes - SOCKET_BYTES)

    @override
    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    @override
    def can_write_eof(self) -> bool:
        return False

    @override
    def is_reading(self) -> bool:
        return self._is_reading and not self.is_closing()

    @override
    def pause_reading(self) -> None:
        self._is_reading = False

    @override
    def resume_reading(self) -> None:
        self._is_reading = True
        if self._inbox or self._has_finished:
            self._read_soon(0.0)

    @override
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    @override
    def get_protocol(self) -> asyncio.BaseProtocol:
        assert isinstance(self._protocol, asyncio.BaseProtocol)
        return self._protocol

    # -- called by the network

    def lose(self, error: Exception | None) -> None:
        """End this side; notify its protocol at once."""
        if self.is_lost:
            return
        if self._protocol is not None and self._settling_turns:
            # On real loops, what `connection_made` scheduled runs before any loss is noticed.
            self._is_closing = True
            self._call_soon(lambda: self.lose(error))
            return
        self.is_lost = self._is_closing = True
        self._inbox.clear()
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def lose_later(self, delay_s: float) -> None:
        """Notify this side, after a delay, that the connection is lost."""
        error = ConnectionResetError("the peer reset the connection")
        self._loop.call_later(delay_s, self.lose, error, context=self.context)

    def vanish(self) -> None:
        """End this side silently: its node is dead."""
        self.is_lost = self._is_closing = True
        self._queue.clear()
        self._network.forget(self)

    def resume(self) -> None:
        """Try again to deliver data that a cut held back."""
        if self._queue and self._timer is None:
            self._arm(self._loop.now_s + self._network.delay_s(self))

    # -- sending

    def _send(self, data: bytes) -> None:
        due_s = max(self._last_due_s, self._loop.now_s + self._network.delay_s(self))
        self._last_due_s = due_s
        self._queue.append((due_s, data))
        if self._timer is None:
            self._arm(due_s)

    def _arm(self, due_s: float) -> None:
        # Work of the network, in no node's context: dead and paused nodes have live kernels.
        self._timer = self._loop.call_at(due_s, self._deliver, context=self._network.context)

    def _deliver(self) -> None:
        self._timer = None
        peer, now_s = self.peer, self._loop.now_s
        if peer is None or not self._queue:
            return
        if now_s < self.stalled_until_s:
            self._arm(self.stalled_until_s)
            return
        if self._network.is_cut(self.host, peer.host):
            self._network.keep_back(self)
            return
        arrived = []
        while self._queue and self._queue[0][0] <= now_s:
            arrived.append(self._queue.popleft()[1])
        if self._queue:
            self._arm(self._queue[0][0])
        if not arrived:
            return
        if peer.is_lost:
            if arrived[0] is not RESET:
                self._answer_with_reset(peer)
            return
        peer.receive(arrived)

    def _answer_with_reset(self, peer: "Endpoint") -> None:
        self._queue.clear()
        if not peer.is_silent and not self.is_lost:
            self.lose_later(self._network.delay_s(self))

    # -- receiving

    def receive(self, arrived: list[bytes]) -> None:
        """Accept bytes that the network delivers."""
        for data in arrived:
            if data is RESET:
                self.lose_later(0.0)
                return
            if data is FINISH:
                self._has_finished = True
            else:
                self._inbox += data
        if self._is_reading and self._protocol is not None:
            self._read_soon(0.0)

    def _read_soon(self, delay_s: float) -> None:
        if self._reads_again is None and not self.is_lost:
            if delay_s:
                self._reads_again = self._loop.call_later(delay_s, self._read, context=self.context)
            else:
                self._reads_again = self._loop.call_soon(self._read, context=self.context)

    def _read(self) -> None:
        """Pass one piece of the received bytes, or all, to the protocol."""
        self._reads_again = None
        if self.is_lost or not self._is_reading:
            return
        size = self._network.read_size(len(self._inbox))
        while size and self._is_reading and not self.is_lost:
            given = self._give(size)
            size -= given
            peer = self.peer
            if peer is not None:
                peer.note_read(given)
        if self.is_lost:
            return
        if self._inbox:
            self._read_soon(self._network.delay_s(self))
        elif self._has_finished and self._is_reading:
            self._protocol.eof_received()
            self._is_closing = True
            self.lose(None)

    def _give(self, size: int) -> int:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(size))
            count = min(len(buffer), size)
            assert count > 0, "a protocol gave no room"
            buffer[:count] = self._inbox[:count]
            del self._inbox[:count]
            protocol.buffer_updated(count)
            return count
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        protocol.data_received(data)
        return size

    def note_read(self, count: int) -> None:
        """Record that the peer has read this many of the bytes written here."""
        self._unread_bytes -= count
        self._delivered_bytes += count
        if self.tap is not None:
            self.tap.delivered(self._delivered_bytes)
        if self._is_writing_paused and self.get_write_buffer_size() <= self._low:
            self._is_writing_paused = False
            self._call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self.is_lost:
            self._protocol.resume_writing()

    def _call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call, context=self.context)

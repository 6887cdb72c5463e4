"""In-memory transport between a protocol and a test: bytes in, frames out.

Leaves the choice of bytes, and the expected frames, to the episodes.

Invariant: like asyncio's own transports, it delivers nothing while reading is paused or after a
close, and the loop calls `connection_lost` once.
"""

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Final

from typing_extensions import override  # `typing` has it from 3.12 on

from bookie.wire.frames import FRAME_BYTES_MAX, Frame, FrameAssembler
from tests.fuzz.findings import require
from tests.support.bookie.wire_client import feed

PAUSES_MAX: Final = 20_000
PAUSE_S: Final = 0.01


class MemoryTransport(asyncio.Transport):
    """One end of a connection; `frames` are what the protocol sent."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.is_lost = False
        self._protocol = protocol
        self._assembler = FrameAssembler(FRAME_BYTES_MAX)
        self._is_closing = False
        self._is_reading = True
        self._loop = asyncio.get_running_loop()

    @property
    def is_mid_frame(self) -> bool:
        """Whether the protocol sent a part of a frame but not the rest."""
        return self._assembler.is_mid_frame

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.frames += feed(self._assembler, data)

    @override
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    @override
    def is_closing(self) -> bool:
        return self._is_closing

    @override
    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)

    @override
    def abort(self) -> None:
        self.close()

    @override
    def pause_reading(self) -> None:
        self._is_reading = False

    @override
    def resume_reading(self) -> None:
        self._is_reading = True

    @override
    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        require(high is None or high >= (low or 0), "limits are in order")

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return "a test" if name == "peername" else default

    async def deliver(self, data: bytes, rng: random.Random) -> None:
        """Deliver bytes to the protocol, split at any places, with pauses between some of them."""
        at = 0
        piece_max = rng.choice((3, 40, 500, 4_000, 1 << 16))
        pause_share = rng.choice((0.0, 0.1, 0.5)) if piece_max > 3 else 0.01
        while at < len(data) and not self._is_closing:
            await self._wait_reading()
            if self._is_closing:
                return
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), 1 + int(rng.random() * piece_max), len(data) - at)
            require(count > 0, "there is room to receive into")
            room[:count] = data[at : at + count]
            room.release()
            at += count
            self._protocol.buffer_updated(count)
            if rng.random() < pause_share:
                await asyncio.sleep(rng.random() * 0.002)

    async def _wait_reading(self) -> None:
        pauses = 0
        while not self._is_reading and not self._is_closing:
            pauses += 1
            require(pauses < PAUSES_MAX, "reading goes on at last, or the connection ends")
            await asyncio.sleep(PAUSE_S)

    def _lose(self) -> None:
        self.is_lost = True
        self._protocol.connection_lost(None)

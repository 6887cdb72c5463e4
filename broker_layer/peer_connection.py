"""One connection to another broker: concurrent requests, answered in order.

Leaves creating and replacing connections to `peer`, and bodies to their senders.

Format: Kafka's frames with flexible headers, so only flexible versions of an API can be requested.
A request after its length: API key i16, version i16, correlation id i32, client id (i16 length),
tagged fields, body. A response after its length: correlation id i32, tagged fields, body.

Invariants: every call ends exactly once, with its answer or with the connection; an answer that is
out of order or too long closes the connection.

Source: Kafka's protocol guide; KIP-482.
"""

import asyncio
import contextlib
import struct
from collections import deque
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.primitives import NO_TAGS, parsing, skip_tags

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
CALLS_MAX: Final = 1_000
"""Maximum number of unanswered calls of one connection; further calls are refused."""

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhih")
_CORRELATION = struct.Struct(">i")
_CORRELATION_MODULUS: Final = 1 << 31


class PeerError(TopicError):
    """Another broker was not reached or did not answer; the request may have had its effect."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, text)


class PeerConnection:
    """One connection to another broker."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id.encode()
        self._calls: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._last_correlation_id = 0
        self._failure: PeerError | None = None
        self._closes_for = ""
        """Why the connection is closed after its answers; empty if it is not."""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._failure is None

    def call(self, api_key: int, version: int, body: bytes) -> "asyncio.Future[memoryview]":
        """Send a request; return the future of the answer's body.

        Raises PeerError; the future fails with PeerError when the connection ends.
        """
        if self._failure is not None:
            raise self._failure
        if len(self._calls) >= CALLS_MAX:
            raise PeerError(f"{CALLS_MAX} requests to the broker are unanswered; try again later")
        self._last_correlation_id = (self._last_correlation_id + 1) % _CORRELATION_MODULUS
        client_id, number = self._client_id, self._last_correlation_id
        length = _REQUEST.size - _LENGTH.size + len(client_id) + len(NO_TAGS) + len(body)
        header = _REQUEST.pack(length, api_key, version, number, len(client_id))
        self._writer.write(b"".join((header, client_id, NO_TAGS, body)))
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._calls.append((number, answer))
        return answer

    def close(self, why: str) -> None:
        """Close the connection at once; unanswered calls fail."""
        if self._failure is not None:
            return
        self._failure = PeerError(why)
        self._reading.cancel()
        self._writer.transport.abort()
        while self._calls:
            _, answer = self._calls.popleft()
            if not answer.done():
                answer.set_exception(PeerError(why))
                answer.exception()  # mark it as retrieved: the caller may no longer wait

    def close_after_answers(self, why: str) -> None:
        """Close the connection once every call has its answer; no call may follow."""
        self._closes_for = why
        if not self._calls:
            self.close(why)

    async def wait_closed(self) -> None:
        """Wait until the connection is closed and its task has ended."""
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if not _CORRELATION.size < length <= FRAME_BYTES_MAX:
                    raise KafkaFrameError(f"an answer has a length of {length} B")
                self._take(memoryview(await self._reader.readexactly(length)))
        except (OSError, EOFError) as error:
            self.close(f"the connection ended: {error}")
        except KafkaFrameError as error:
            self.close(f"the broker sent an invalid answer: {error}")

    def _take(self, frame: memoryview) -> None:
        number, start = _read_header(frame)
        if not self._calls or self._calls[0][0] != number:
            raise KafkaFrameError(f"answer {number} is out of order")
        _, answer = self._calls.popleft()
        if not answer.done():
            answer.set_result(frame[start:])
        if self._closes_for and not self._calls:
            self.close(self._closes_for)


@parsing
def _read_header(frame: memoryview) -> tuple[int, int]:
    (number,) = _CORRELATION.unpack_from(frame)
    return number, skip_tags(frame, _CORRELATION.size)

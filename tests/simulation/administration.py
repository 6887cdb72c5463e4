"""HTTP client for the administration of a simulated bookie, as an operator's tool uses it.

Leaves what the requests do to `bookie/server/admin.py`.
"""

import asyncio
from typing import Final

from typing_extensions import override

ANSWER_S_MAX: Final = 60.0


class _Exchange(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    @override
    def data_received(self, data: bytes) -> None:
        self._answer += data

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(self._answer)


async def post(host: str, port: int, path: str, body: bytes = b"") -> int:
    """Send one request and return its HTTP status; 0 if no response arrived."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            _, exchange = await asyncio.get_running_loop().create_connection(
                lambda: _Exchange(head.encode() + body), host, port
            )
            answer = await exchange.ended
    except (OSError, TimeoutError):
        return 0
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 else 0

"""HTTP client for a bookie's admin server.

Leaves the choice of the request to the commands. Implements the part of HTTP that it needs, so
that a client's installation needs no HTTP library.

Invariant: a response is limited in bytes and in time.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
TIMEOUT_S: Final = 5.0
HTTP_OK: Final = 200

Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None


class AdminApiError(Exception):
    """The admin server did not respond, or its response was not as expected."""


async def get_json(url: str, *, timeout_s: float = TIMEOUT_S) -> Json:
    """Return the decoded response to a GET. Raises AdminApiError."""
    return await _call(url, "GET", b"", timeout_s)


async def post_json(url: str, value: Json, *, timeout_s: float = TIMEOUT_S) -> Json:
    """Return the decoded response to a POST. Raises AdminApiError: after a timeout it is unknown
    whether the change was made.
    """
    return await _call(url, "POST", json.dumps(value).encode(), timeout_s)


async def _call(url: str, method: str, body: bytes, timeout_s: float) -> Json:
    try:
        async with asyncio.timeout(timeout_s):
            head, answered = await _exchange(url, method, body)
        words = head.split(b"\r\n", 1)[0].split()
        status = int(words[1]) if len(words) > 1 else 0
        if status != HTTP_OK:
            raise AdminApiError(f"{url} returned status {status}: {answered[:200]!r}")
        answer: Json = json.loads(answered)
        return answer
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
        raise AdminApiError(f"{url} did not respond: {error or type(error).__name__}") from error


async def _exchange(url: str, method: str, body: bytes) -> tuple[bytes, bytes]:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None or parts.port is None:
        raise AdminApiError(f"{url} is not an address of an admin server: http://host:port/...")
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        # HTTP/1.0: the end of the connection ends the response, so nothing is chunked.
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        begin = f"{method} {target} HTTP/1.0\r\nHost: {parts.netloc}\r\n{length}\r\n"
        writer.write(begin.encode() + body)
        answer = await reader.read(ANSWER_BYTES_MAX)
        while chunk := await reader.read(ANSWER_BYTES_MAX - len(answer)):
            answer += chunk
    finally:
        writer.close()
    head, _, answered = answer.partition(b"\r\n\r\n")
    return head, answered

"""HTTP client for a bookie's admin server.

Implements the part of HTTP that it needs, so that a client's installation needs no HTTP library.

Invariants: a response is limited in bytes and in time. Where a server is comes from its
registration, which may be another's: the token is sent over TLS, to a server with a certificate for
this address, or to a port of this machine if the client's file allows it.
"""

import asyncio
import json
from typing import Final
from urllib.parse import urlsplit

from quire.addresses import is_loopback
from quire.identity.client_file import NO_IDENTITY, ClientFile
from quire.identity.tls import TlsFiles, client_context
from quire.operate.fields import Json

ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
TIMEOUT_S: Final = 5.0
HTTP_OK: Final = 200
HTTP_REFUSED: Final = (401, 403)
HTTP_NOT_FOUND: Final = 404
SCHEMES: Final = ("http", "https")


class AdminApiError(Exception):
    """The admin server did not respond, or its response was not as expected."""


class AdminSilentError(AdminApiError):
    """The admin server did not respond in time."""


class AdminRefusedError(AdminApiError):
    """The admin server refuses the request of this client."""


class AdminNotFoundError(AdminApiError):
    """The admin server does not have what was asked for, such as a ledger."""


async def get_json(
    url: str, identity: ClientFile = NO_IDENTITY, *, timeout_s: float = TIMEOUT_S
) -> Json:
    """Return the decoded response to a GET. Raises AdminApiError, SecurityError."""
    return _decoded(url, await _call(url, identity, "GET", b"", timeout_s))


async def get_text(
    url: str, identity: ClientFile = NO_IDENTITY, *, timeout_s: float = TIMEOUT_S
) -> str:
    """Return the text of the response to a GET. Raises AdminApiError, SecurityError."""
    return (await _call(url, identity, "GET", b"", timeout_s)).decode(errors="replace")


async def post_json(
    url: str, value: Json, identity: ClientFile = NO_IDENTITY, *, timeout_s: float = TIMEOUT_S
) -> Json:
    """Return the decoded response to a POST. Raises AdminApiError: after a timeout it is unknown
    whether the change was made; SecurityError.
    """
    body = json.dumps(value).encode()
    return _decoded(url, await _call(url, identity, "POST", body, timeout_s))


def _decoded(url: str, answered: bytes) -> Json:
    try:
        answer: Json = json.loads(answered)
    except ValueError as error:
        raise AdminApiError(f"{url} did not respond: {error}") from error
    return answer


async def _call(
    url: str, identity: ClientFile, method: str, body: bytes, timeout_s: float
) -> bytes:
    try:
        async with asyncio.timeout(timeout_s):
            head, answered = await _exchange(url, identity, method, body)
        words = head.split(b"\r\n", 1)[0].split()
        status = int(words[1]) if len(words) > 1 else 0
        if status in HTTP_REFUSED:
            raise AdminRefusedError(_refusal(answered))
        if status != HTTP_OK:
            kind = AdminNotFoundError if status == HTTP_NOT_FOUND else AdminApiError
            raise kind(f"{url} returned status {status}: {answered[:200]!r}")
    except TimeoutError as error:
        raise AdminSilentError(f"{url} did not respond within {timeout_s:g} s") from error
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        raise AdminApiError(f"{url} did not respond: {error or type(error).__name__}") from error
    return answered


def _refusal(answered: bytes) -> str:
    answer = json.loads(answered)
    return str(answer["error"]) if isinstance(answer, dict) and "error" in answer else "it refused"


async def _exchange(
    url: str, identity: ClientFile, method: str, body: bytes
) -> tuple[bytes, bytes]:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or parts.hostname is None or parts.port is None:
        raise AdminApiError(f"{url} is not an address of an admin server: http://host:port/...")
    context, token = None, identity.admin_token
    if parts.scheme == "https":
        if token and identity.tls is None:
            raise AdminApiError(
                f"the token is not sent to {url}, because the client's file does not say whose"
                " certificates it trusts: add [tls]"
            )
        context = identity.context or client_context(TlsFiles())
    elif token and not (identity.may_show_token and is_loopback(parts.hostname)):
        raise AdminApiError(
            f"{url} has no TLS: the token is not sent there. Give the server TLS; to one of this"
            " machine it is sent with allow_plaintext = true below [admin] of the client's file"
        )
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        # HTTP/1.0: the end of the connection ends the response, so nothing is chunked.
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        proof = f"Authorization: Bearer {token}\r\n" if token else ""
        begin = f"{method} {target} HTTP/1.0\r\nHost: {parts.netloc}\r\n{length}{proof}\r\n"
        writer.write(begin.encode() + body)
        answer = await reader.read(ANSWER_BYTES_MAX)
        while chunk := await reader.read(ANSWER_BYTES_MAX - len(answer)):
            answer += chunk
    finally:
        writer.close()
    head, _, answered = answer.partition(b"\r\n\r\n")
    return head, answered

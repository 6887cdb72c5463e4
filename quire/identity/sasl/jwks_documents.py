"""Reads of JWKS documents, from a file or a server.

Leaves when to read to `jwks_cache`, and the content to `jwks`.

Invariants: a URL is one of those that the operator allows, character by character, and uses TLS. No
redirect is followed, and no proxy of the environment is used. A document of more than
DOCUMENT_BYTES_MAX is refused before the rest of it is read.

Source: CVE-2025-27817; KIP-768, KIP-1139.
"""

import ssl
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from quire.identity.errors import JwksError, SecretError
from quire.identity.sasl.jwks import DOCUMENT_BYTES_MAX
from quire.identity.secret_files import read_bounded

FETCH_S_MAX: Final = 8.0
CHUNK_BYTES: Final = 65_536


def read_jwks_file(path: str) -> bytes:
    """Return the document of a file. It blocks, as reads of small files do. Raises JwksError."""
    try:
        return read_bounded(path, DOCUMENT_BYTES_MAX, is_private=False)
    except SecretError as error:
        raise JwksError(str(error)) from error


def check_url(url: str, allowed: Sequence[str]) -> None:
    """Refuse a URL that is not allowed, or not one of TLS. Raises JwksError."""
    try:
        parts = urlsplit(url)
        is_plain = not (parts.username or parts.password or parts.fragment)
        is_https = parts.scheme == "https" and bool(parts.hostname)
    except ValueError:
        is_plain = is_https = False
    if not (is_plain and is_https):
        raise JwksError(
            "a URL of a JWKS document begins with https://, and has no user or fragment"
        )
    if url not in allowed:
        raise JwksError(f"the URL {url} is not one of the allowed ones: add it, or correct it")


async def fetch_jwks(url: str, allowed: Sequence[str], context: ssl.SSLContext) -> bytes:
    """Return the document at a URL. Raises JwksError."""
    check_url(url, allowed)
    timeout = aiohttp.ClientTimeout(total=FETCH_S_MAX)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector, timeout=timeout, headers=headers, auto_decompress=False
            ) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                raise JwksError(f"{url} answers with status {response.status}")
            return await _read(url, response)
    except TimeoutError as error:
        raise JwksError(f"{url} does not answer within {FETCH_S_MAX:.0f} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise JwksError(f"{url} cannot be read ({error})") from error


async def _read(url: str, response: aiohttp.ClientResponse) -> bytes:
    document = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        document += chunk
        if len(document) > DOCUMENT_BYTES_MAX:
            raise JwksError(f"the document of {url} has more than {DOCUMENT_BYTES_MAX} B")
    return bytes(document)

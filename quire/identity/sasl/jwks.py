"""Public keys for signatures of tokens: a JWKS document, how it is read, and when again.

Format: a JSON object with the list `keys`. A key has `kty`, which is `RSA` with `n` and `e`, or
`EC` with `crv`, `x` and `y`; and perhaps `kid`, `use`, `key_ops`, and `alg`.

Invariants: secret keys (`oct`) and private keys are never used, nor are keys that are too weak, or
whose use is not signatures: they are left out. Which algorithms a key is for follows from the key
and its `alg`, not from a token.

Source: RFC 7517; RFC 7518, section 6; RFC 7517, section 5; KIP-768; CVE-2025-27817; KIP-768,
KIP-1139.
"""

import asyncio
import base64
import contextlib
import json
import math
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from quire.identity.errors import JwksError, SecretError
from quire.identity.secret_files import read_bounded

DOCUMENT_BYTES_MAX: Final = 262_144
KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192
RSA_EXPONENT_MAX: Final = 2**32
NUMBER_CHARACTERS_MAX: Final = 2_048
"""A number of RSA_BITS_MAX has 1,366."""

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final[dict[str, tuple[ec.EllipticCurve, str]]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}
ALGORITHMS: Final = (*RSA_ALGORITHMS, *(algorithm for _, algorithm in CURVES.values()))
"""Every algorithm of signatures that is accepted: each has a public key."""

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One public key."""

    kid: str | None
    algorithms: tuple[str, ...]
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey


def parse_jwks(document: bytes) -> tuple[VerificationKey, ...]:
    """Return the keys of a document that can be used. Raises JwksError if there is none."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise JwksError(f"the JWKS document has more than {DOCUMENT_BYTES_MAX} B")
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise JwksError("the JWKS document is not JSON") from None
    listed = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(listed, list):
        raise JwksError("the JWKS document has no list `keys`")
    if len(listed) > KEYS_MAX:
        raise JwksError(
            f"the JWKS document has {len(listed)} keys, and at most {KEYS_MAX} are read"
        )
    keys = tuple(
        key for item in listed if isinstance(item, dict) and (key := _key(item)) is not None
    )
    if not keys:
        raise JwksError(
            "the JWKS document has no public key for signatures: it needs an RSA key of "
            f"{RSA_BITS_MIN} bits or more, or one on the curves {', '.join(CURVES)}"
        )
    return keys


def find_key(
    keys: Sequence[VerificationKey], kid: str | None, algorithm: str
) -> VerificationKey | None:
    """Return the key that a token names. A token that names none has one only if exactly one key
    is for its algorithm.
    """
    suitable = [key for key in keys if algorithm in key.algorithms]
    if kid is None:
        return suitable[0] if len(suitable) == 1 else None
    return next((key for key in suitable if key.kid == kid), None)


def _key(listed: dict[str, object]) -> VerificationKey | None:
    """Return a key, or None if it cannot be used."""
    kid, operations = listed.get("kid"), listed.get("key_ops", ["verify"])
    is_for_signatures = (
        listed.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )
    if not is_for_signatures or "d" in listed or not isinstance(kid, str | None):
        return None
    try:
        match listed.get("kty"):
            case "RSA":
                key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey = _rsa_key(listed)
                algorithms: tuple[str, ...] = RSA_ALGORITHMS
            case "EC":
                curve, algorithm = CURVES[str(listed["crv"])]
                x, y = _number(listed, "x"), _number(listed, "y")
                key = ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
                algorithms = (algorithm,)
            case _:
                return None
    except (KeyError, ValueError, UnsupportedAlgorithm):
        return None
    if "alg" in listed:
        algorithms = tuple(name for name in algorithms if name == listed["alg"])
    return VerificationKey(kid, algorithms, key) if algorithms else None


def _rsa_key(listed: dict[str, object]) -> rsa.RSAPublicKey:
    modulus, exponent = _number(listed, "n"), _number(listed, "e")
    if not RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX or exponent > RSA_EXPONENT_MAX:
        raise ValueError("the key is too weak or too long")
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _number(listed: dict[str, object], name: str) -> int:
    text = str(listed[name])
    if len(text) > NUMBER_CHARACTERS_MAX or not _BASE64URL.fullmatch(text):
        raise ValueError(f"{name} is not base64url")
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


FILE_REFRESH_S: Final = 10.0
"""A file is read again this often, as those of certificates are."""
URL_REFRESH_S: Final = 600.0
REFRESH_GAP_S: Final = 10.0
READ_S_MAX: Final = 10.0
KEYS_KEPT_S: Final = 86_400.0

ReadDocument = Callable[[], Awaitable[bytes]]
"""Returns the document. Raises JwksError."""


class JwksCache:
    """Keys of one document. `clock_s` is the loop's, not the wall clock.

    A document is read when its keys are older than `refresh_s`, and when a token names an unknown
    key, but never twice within REFRESH_GAP_S, however many clients ask. A client that leaves does
    not stop a read. A document that cannot be read leaves the keys of the last one in use, for at
    most KEYS_KEPT_S.
    """

    def __init__(
        self, read: ReadDocument, clock_s: Callable[[], float], refresh_s: float = URL_REFRESH_S
    ) -> None:
        assert refresh_s >= REFRESH_GAP_S
        self._read = read
        self._clock_s = clock_s
        self._refresh_s = refresh_s
        self._keys: tuple[VerificationKey, ...] = ()
        self._document = b""
        self._read_at_s = -math.inf
        self._tried_at_s = -math.inf
        self._reading: asyncio.Task[None] | None = None
        self.failure = ""
        """Why the last read failed; empty if it did not."""

    async def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """Return the key that a token names; see `jwks.find_key`. Raises JwksError if no document
        could be read.
        """
        if self._age_s() >= self._refresh_s:
            await self._refresh()
        key = find_key(self._keys, kid, algorithm)
        if key is None:
            await self._refresh()
            key = find_key(self._keys, kid, algorithm)
        if self._age_s() > KEYS_KEPT_S:
            why = self.failure or "no read has ended yet"
            raise JwksError(f"there are no keys for tokens: {why}")
        return key

    async def close(self) -> None:
        """Stop a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    def _age_s(self) -> float:
        return self._clock_s() - self._read_at_s

    async def _refresh(self) -> None:
        """Read the document again, or wait for a read that is under way."""
        if self._reading is None or self._reading.done():
            if self._clock_s() - self._tried_at_s < REFRESH_GAP_S:
                return
            self._tried_at_s = self._clock_s()
            self._reading = asyncio.create_task(self._read_again())
        await asyncio.shield(self._reading)

    async def _read_again(self) -> None:
        try:
            async with asyncio.timeout(READ_S_MAX):
                document = await self._read()
            if document != self._document:
                self._keys = parse_jwks(document)
                self._document = document
        except TimeoutError:
            self.failure = f"the JWKS document was not read within {READ_S_MAX:.0f} s"
        except JwksError as error:
            self.failure = str(error)
        else:
            self.failure = ""
            self._read_at_s = self._clock_s()


FETCH_S_MAX: Final = 8.0
CHUNK_BYTES: Final = 65_536


def read_jwks_file(path: str) -> bytes:
    """Return the document of a file. It blocks, as reads of small files do. Raises JwksError.

    A URL is one of those that the operator allows, character by character, and uses TLS. No
    redirect is followed, and no proxy of the environment is used. A document of more than
    DOCUMENT_BYTES_MAX is refused before the rest of it is read.
    """
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

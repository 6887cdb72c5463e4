"""Logins by SCRAM-SHA-512 over one connection, step by step, right or wrong.

Leaves connections to `tests.differential.wire`. It shares no code with the broker, which it checks.

Source: RFC 5802, KIP-43, KIP-152.
"""

import base64
import hashlib
import hmac
import ssl
from typing import Final

from quire.server.overriding import override
from tests.differential.answers import at, number
from tests.differential.security.servers import MECHANISM
from tests.differential.wire import ConnectionClosedError, Tree, Wire

ITERATIONS: Final = 4096
HASH: Final = "sha512"
NONCE: Final = "differentialclient"
HEADER: Final = "n,,"
BINDING: Final = base64.b64encode(HEADER.encode()).decode()


def salted(
    password: str, salt: bytes, iterations: int = ITERATIONS, hash_name: str = HASH
) -> bytes:
    """Return the salted password of RFC 5802."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def first_message(user: str, header: str = HEADER) -> bytes:
    """Return the client's first message."""
    return f"{header}n={user},r={NONCE}".encode()


def final_message(
    user: str, password: str, challenge: bytes, *, binding: str = BINDING, nonce_end: str = ""
) -> bytes:
    """Return the client's final message for the challenge of the server."""
    parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
    key = salted(password, base64.b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(key, b"Client Key", HASH)
    without_proof = f"c={binding},r={parts['r']}{nonce_end}"
    signed = f"n={user},r={NONCE},{challenge.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(HASH, client_key).digest(), signed, HASH)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def auth_bytes(answer: Tree) -> bytes:
    """Return the bytes of an answer to SaslAuthenticate; none if there is no such answer."""
    found = at(answer, "auth_bytes")
    return bytes(found) if isinstance(found, (bytes, bytearray, memoryview)) else b""


class LoginWire(Wire):
    """A connection that logs in when it opens."""

    def __init__(
        self, address: str, context: ssl.SSLContext, user: str | None, password: str = ""
    ) -> None:
        """Without a user it does not log in."""
        super().__init__(address, context)
        self._user = user
        self._password = password

    @override
    async def tell(self, frame: bytes) -> None:
        """Send a request that has no answer. Raises ConnectionClosedError for a refused login."""
        if not self.is_open and self._user is not None:
            await self.connect()
            await self.log_in(self._user, self._password)
        await super().tell(frame)

    async def log_in(self, user: str, password: str) -> None:
        """Log in on the open connection. Raises ConnectionClosedError if it is refused."""
        answer = await self.ask("SaslHandshake", 1, {"mechanism": MECHANISM})
        if number(answer, "error_code") == 0:
            first = {"auth_bytes": first_message(user)}
            answer = await self.ask("SaslAuthenticate", 2, first)
        if number(answer, "error_code") == 0:
            final = {"auth_bytes": final_message(user, password, auth_bytes(answer))}
            answer = await self.ask("SaslAuthenticate", 2, final)
        if number(answer, "error_code") != 0:
            await self.aclose()
            raise ConnectionClosedError

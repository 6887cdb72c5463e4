"""OAUTHBEARER, where the client sends a token. Both sides. Pure.

Format of the client's message: `n,[a=<authorization identity>],` SOH `auth=Bearer <token>` SOH
{`<key>=<value>` SOH} SOH, where SOH is the byte 1. The server answers nothing if the token is
right, and else a JSON object with `status`; the client answers that with one SOH, and only then the
exchange fails.

Invariants: the server's answer does not say what is wrong with a token. The session ends when its
token does.

Source: RFC 7628, section 3; KIP-255.
"""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from quire.identity.errors import JwksError, SaslError, TokenError
from quire.identity.principal import Principal
from quire.identity.sasl.mechanism import (
    ENDED,
    REFUSED,
    Exchange,
    Mechanism,
    Step,
    check_names,
    check_size,
    decode_text,
    malformed,
)

MESSAGE_BYTES_MAX: Final = 32_768
SEPARATOR: Final = "\x01"
FAILURE_END: Final = b"\x01"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
SHOWN_CHARACTERS: Final = 64

NAME: Final = Mechanism.OAUTHBEARER
_START: Final = re.compile(r"[ny],(?:a=([^,\x01]*))?,\Z")
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x20-\x7e\t\r\n]*)")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_BEARER: Final = re.compile(rf"bearer +({_TOKEN.pattern})", re.IGNORECASE)
_AUTH: Final = "auth"


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What a token proves."""

    principal: Principal
    expires_at_s: float


VerifyToken = Callable[[str], Awaitable[VerifiedToken]]
"""Verifies a token, as `TokenVerifier.verify`. Raises TokenError, JwksError."""


class OAuthBearerServer(Exchange):
    """One exchange."""

    def __init__(self, verify: VerifyToken) -> None:
        self._verify = verify
        self._verified: VerifiedToken | None = None
        self._why = ""

    @property
    def principal(self) -> Principal:
        """See `SaslExchange`."""
        assert self.is_complete
        assert self._verified is not None
        return self._verified.principal

    async def respond(self, message: bytes) -> bytes:
        """See `SaslExchange`."""
        step = self._take_step()
        match step:
            case Step.FIRST:
                return await self._check(*parse_bearer(message))
            case Step.REFUSED:
                raise SaslError(REFUSED, self._why)
            case _:
                raise SaslError(ENDED)

    async def _check(self, token: str, authorization: str) -> bytes:
        try:
            verified = await self._verify(token)
        except (TokenError, JwksError) as error:
            self._why = str(error)
            self._step = Step.REFUSED
            return INVALID_TOKEN
        check_names(verified.principal.name, authorization)
        self._verified = verified
        self.expires_at_s = verified.expires_at_s
        self._step = Step.COMPLETE
        return b""


class OAuthBearerClient(Exchange):
    """One exchange. Raises SaslError if the token cannot be sent."""

    def __init__(self, token: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise SaslError("the token has characters that no token has: check where it comes from")
        self._message = f"n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}{SEPARATOR}".encode()
        parse_bearer(self._message)
        self._status = ""

    def begin(self) -> bytes:
        """See `SaslClientExchange`."""
        return self._message

    async def respond(self, message: bytes) -> bytes | None:
        """See `SaslClientExchange`."""
        step = self._take_step()
        match step:
            case Step.FIRST if not message:
                self._step = Step.COMPLETE
                return None
            case Step.FIRST:
                self._status = _status(message)
                self._step = Step.REFUSED
                return FAILURE_END
            case Step.REFUSED:
                raise SaslError(f"the server refuses the token: {self._status}")
            case _:
                raise SaslError(ENDED)


def parse_bearer(message: bytes) -> tuple[str, str]:
    """Return the token and the authorization identity. Raises SaslError."""
    check_size(NAME, message, MESSAGE_BYTES_MAX)
    parts = decode_text(NAME, message).split(SEPARATOR)
    start = _START.match(parts[0])
    if start is None:
        raise malformed(NAME, "it does not begin with n,, (there is no channel binding)")
    if len(parts) < 3 or parts[-2:] != ["", ""]:  # noqa: PLR2004 - the start and two ends
        raise malformed(NAME, "it does not end with two bytes 1")
    values: dict[str, str] = {}
    for part in parts[1:-2]:
        pair = _PAIR.fullmatch(part)
        if pair is None or pair[1].lower() in values:
            raise malformed(NAME, "a field is not of the form key=value, or is there twice")
        values[pair[1].lower()] = pair[2]
    bearer = _BEARER.fullmatch(values.get(_AUTH, ""))
    if bearer is None:
        raise malformed(NAME, "it has no field auth=Bearer with a token")
    return bearer[1], (start[1] or "").replace("=2C", ",").replace("=3D", "=")


def _status(message: bytes) -> str:
    """Return the status of a server's answer, as far as an error shows it."""
    check_size(NAME, message, MESSAGE_BYTES_MAX)
    try:
        answer = json.loads(message)
    except (ValueError, RecursionError):
        raise malformed(NAME, "the server's answer is not JSON") from None
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, str):
        raise malformed(NAME, "the server's answer has no status")
    return repr(status[:SHOWN_CHARACTERS])

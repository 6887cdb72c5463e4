"""Messages of SCRAM. Pure.

Leaves proofs to `scram` and `scram_client`.

Format, with c1 and c2 from the client, s1 and s2 from the server:

- c1: `n,[a=<name>],n=<user>,r=<nonce>[,<extensions>]`; `y` for the first `n` means that the client
  has channel binding, and the server has none.
- s1: `r=<both nonces>,s=<base64 salt>,i=<iterations>[,<extensions>]`
- c2: `c=<base64 of all before n=>,r=<both nonces>[,<extensions>],p=<base64 proof>`
- s2: `v=<base64 signature>[,<extensions>]` or `e=<error>[,<extensions>]`

In names, `=2C` is a comma and `=3D` an equals sign. Extensions are ignored, but for the mandatory
one, `m=`, which is refused.

Invariants: fields have the order above; base64 has one form. No parser takes more than
MESSAGE_BYTES_MAX.

Source: RFC 5802, sections 5 and 7; KIP-84.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Final

from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    check_iterations,
)
from quire.identity.sasl.mechanism import check_size, decode_text, malformed
from quire.identity.sasl.user_names import check_names

MESSAGE_BYTES_MAX: Final = 4_096
SCRAM: Final = "SCRAM"

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[^\0]+")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_ESCAPE: Final = re.compile(r"=(?!2C|3D)")


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message."""

    binding: bytes
    """Everything before `bare`, which the client repeats in its last message."""
    user: str
    nonce: str
    bare: str


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's last message."""

    binding: bytes
    nonce: str
    without_proof: str
    proof: bytes = field(repr=False)


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse c1. Raises SaslError."""
    parts = _split(message, fields=4)
    flag, authorization, user = parts[0], parts[1], _value(parts[2], "n")
    if flag.startswith("p="):
        raise malformed(SCRAM, "this server has no channel binding; use the mechanism without it")
    if flag not in ("n", "y"):
        raise malformed(SCRAM, "it does not begin with n, or y,")
    asked = _decode_name(_value(authorization, "a")) if authorization else ""
    name = _decode_name(user)
    nonce = _nonce(parts[3])
    _check_extensions(parts[4:])
    check_names(name, asked)
    binding = f"{flag},{authorization},".encode()
    return ClientFirst(binding, name, nonce, ",".join(parts[2:]))


def parse_server_first(message: bytes) -> ServerFirst:
    """Parse s1. Raises SaslError."""
    parts = _split(message, fields=3)
    nonce, salt, number = _nonce(parts[0]), decode_base64(_value(parts[1], "s")), parts[2]
    _check_extensions(parts[3:])
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise malformed(SCRAM, f"a salt has 1 to {SALT_BYTES_MAX} B, not {len(salt)}")
    if not _NUMBER.fullmatch(_value(number, "i")):
        raise malformed(SCRAM, "the iterations are not a number")
    iterations = int(_value(number, "i"))
    try:
        check_iterations(iterations)
    except ValueError:
        raise SaslError(
            f"the server asks for {iterations} iterations of SCRAM, which have to be "
            f"{ITERATIONS_MIN} to {ITERATIONS_MAX}: check that it is the right server"
        ) from None
    return ServerFirst(nonce, salt, iterations)


def parse_client_final(message: bytes) -> ClientFinal:
    """Parse c2. Raises SaslError."""
    parts = _split(message, fields=3)
    binding, nonce = decode_base64(_value(parts[0], "c")), _nonce(parts[1])
    _check_extensions(parts[2:-1])
    proof = decode_base64(_value(parts[-1], "p"))
    return ClientFinal(binding, nonce, ",".join(parts[:-1]), proof)


def parse_server_final(message: bytes) -> bytes:
    """Parse s2 and return the server's signature. Raises SaslError, also for the server's error."""
    parts = _split(message, fields=1)
    _check_extensions(parts[1:])
    if parts[0].startswith("e="):
        raise SaslError(f"the server refuses the authentication: {parts[0][2:]!r}")
    return decode_base64(_value(parts[0], "v"))


def encode_name(name: str) -> str:
    """Return a name as messages have it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def decode_base64(text: str) -> bytes:
    """Decode base64 that has its one form. Raises SaslError."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise malformed(SCRAM, "a field is not base64") from None
    if base64.b64encode(decoded).decode() != text:
        raise malformed(SCRAM, "a field is not base64")
    return decoded


def _split(message: bytes, fields: int) -> list[str]:
    check_size(SCRAM, message, MESSAGE_BYTES_MAX)
    parts = decode_text(SCRAM, message).split(",")
    if len(parts) < fields:
        raise malformed(SCRAM, f"it has {len(parts)} fields instead of {fields}")
    return parts


def _value(part: str, name: str) -> str:
    """Return the value of a field that has to have this name. Raises SaslError."""
    if part.startswith("m="):
        raise malformed(SCRAM, "it has a mandatory extension, which this side does not know")
    if not part.startswith(f"{name}="):
        raise malformed(SCRAM, f"the field {name}= is not at its place")
    return part[2:]


def _nonce(part: str) -> str:
    nonce = _value(part, "r")
    if not _NONCE.fullmatch(nonce):
        raise malformed(SCRAM, "a nonce has printable characters of ASCII, and no comma")
    return nonce


def _check_extensions(parts: list[str]) -> None:
    for part in parts:
        if part.startswith("m="):
            raise malformed(SCRAM, "it has a mandatory extension, which this side does not know")
        if not _EXTENSION.fullmatch(part):
            raise malformed(SCRAM, "an extension is not of the form name=value")


def _decode_name(text: str) -> str:
    if _ESCAPE.search(text):
        raise malformed(SCRAM, "an equals sign in a name is written =3D")
    return text.replace("=2C", ",").replace("=3D", "=")

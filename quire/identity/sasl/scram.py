"""SCRAM-SHA-256 and SCRAM-SHA-512: the messages, the server's side and the client's. Pure.

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

Source: RFC 5802, sections 3, 5 and 7; RFC 7677; CVE-2024-56128; KIP-84.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from quire.identity.errors import SaslError
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    Decoys,
    ScramCredential,
    ScramMechanism,
    check_iterations,
    client_key,
    salted_password,
    server_key,
)
from quire.identity.sasl.mechanism import (
    ENDED,
    REFUSED,
    Exchange,
    RunSlow,
    Step,
    check_names,
    check_size,
    decode_text,
    malformed,
)

FindCredential = Callable[[str, ScramMechanism], ScramCredential | None]
"""Returns what is stored of a user's password for a mechanism, from memory."""
MESSAGE_BYTES_MAX: Final = 4_096
SCRAM: Final = "SCRAM"
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[^\0]+")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_ESCAPE: Final = re.compile(r"=(?!2C|3D)")
NO_BINDING: Final = "n,,"


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message."""

    binding: bytes
    """Everything before `bare`, which the client repeats in its last message."""
    user: str
    nonce: str
    bare: str


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's last message."""

    binding: bytes
    nonce: str
    without_proof: str
    proof: bytes = field(repr=False)


class ScramServer(Exchange):
    """One exchange. `nonce` is the server's part, and never used again.

    An unknown user takes the same steps as one with a wrong password, with the same work and
    messages of the same form, and fails in the last step with the same text. The nonce that the
    client repeats is compared as a whole: a message of another exchange, or one with a nonce of the
    client's choice, is refused. What the client says of channel binding in its first message, it
    confirms in its last one.
    """

    def __init__(
        self, mechanism: ScramMechanism, find: FindCredential, decoys: Decoys, nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._decoys = decoys
        self._own_nonce = nonce
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        """What is stored of the user's password; None for an unknown user."""
        self._checked: ScramCredential | None = None
        """The same, or a decoy."""
        self._server_first = ""

    @property
    def principal(self) -> Principal:
        """See `SaslExchange`."""
        assert self.is_complete
        assert self._first is not None
        return Principal(self._first.user)

    async def respond(self, message: bytes) -> bytes:
        """See `SaslExchange`."""
        step = self._take_step()
        match step:
            case Step.FIRST:
                answer = self._begin(parse_client_first(message))
                self._step = Step.FINAL
                return answer
            case Step.FINAL:
                answer = self._finish(parse_client_final(message))
                self._step = Step.COMPLETE
                return answer
            case _:
                raise SaslError(ENDED)

    def _begin(self, first: ClientFirst) -> bytes:
        self._first = first
        credential = self._find(first.user, self._mechanism)
        if credential is not None and credential.mechanism is self._mechanism:
            self._credential = credential
        # Made for every name, so that the time of the answer does not show which names are users.
        (other,) = (mechanism for mechanism in ScramMechanism if mechanism is not self._mechanism)
        like = self._find(first.user, other)
        decoy = self._decoys.credential(first.user, self._mechanism, like)
        self._checked = shown = self._credential or decoy
        salt = base64.b64encode(shown.salt).decode()
        self._server_first = f"r={first.nonce}{self._own_nonce},s={salt},i={shown.iterations}"
        return self._server_first.encode()

    def _finish(self, final: ClientFinal) -> bytes:
        first = self._first
        assert first is not None
        nonce = first.nonce + self._own_nonce
        if not hmac.compare_digest(final.nonce.encode(), nonce.encode()):
            raise SaslError(REFUSED, f"the nonce of {first.user!r} is not that of this exchange")
        if not hmac.compare_digest(final.binding, first.binding):
            raise SaslError(REFUSED, f"{first.user!r} does not confirm what it said of binding")
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        checked = self._checked
        assert checked is not None, "shown by the first answer"
        is_right = proves(checked, signed, final.proof)
        if self._credential is None:
            raise SaslError(REFUSED, f"{first.user!r} has no password for {self._mechanism}")
        if not is_right:
            raise SaslError(REFUSED, f"the password of {first.user!r} is wrong")
        signature = hmac.digest(checked.server_key, signed, self._mechanism.hash_name)
        return b"v=" + base64.b64encode(signature)


def proves(credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
    """Return whether a proof was made with the password of a credential."""
    name = credential.mechanism.hash_name
    signature = hmac.digest(credential.stored_key, signed, name)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int


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


class ScramClient(Exchange):
    """One exchange. `nonce` is the client's part, and never used again.

    Raises SaslError if the name of the user cannot be used.

    The password does not leave this process. A server is accepted only if it has the credential of
    the user. A server that asks for fewer or more iterations than Kafka's limits is refused before
    the password is used: few would make guessing cheap, and many would cost the client time.
    """

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: str, run_slow: RunSlow
    ) -> None:
        check_names(user, "")
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._run_slow = run_slow
        self._bare = f"n={encode_name(user)},r={nonce}"
        self._step = Step.BEGIN
        self._signature = b""

    def begin(self) -> bytes:
        """See `SaslClientExchange`."""
        assert self._step is Step.BEGIN
        self._step = Step.FIRST
        return (NO_BINDING + self._bare).encode()

    async def respond(self, message: bytes) -> bytes | None:
        """See `SaslClientExchange`."""
        step = self._take_step()
        match step:
            case Step.FIRST:
                answer = await self._prove(message, parse_server_first(message))
                self._step = Step.FINAL
                return answer
            case Step.FINAL:
                if not hmac.compare_digest(parse_server_final(message), self._signature):
                    raise SaslError(
                        "the server does not know this user's password: check its address"
                    )
                self._step = Step.COMPLETE
                return None
            case _:
                raise SaslError(ENDED)

    async def _prove(self, message: bytes, first: ServerFirst) -> bytes:
        if not first.nonce.startswith(self._nonce) or len(first.nonce) <= len(self._nonce):
            raise malformed(SCRAM, "the nonce does not begin with this client's part and go on")
        mechanism, name = self._mechanism, self._mechanism.hash_name

        def salt_password() -> bytes:
            return salted_password(mechanism, self._password, first.salt, first.iterations)

        salted = await self._run_slow(salt_password)
        binding = base64.b64encode(NO_BINDING.encode()).decode()
        without_proof = f"c={binding},r={first.nonce}"
        signed = f"{self._bare},{message.decode()},{without_proof}".encode()
        key = client_key(mechanism, salted)
        mask = hmac.digest(hashlib.new(name, key).digest(), signed, name)
        proof = bytes(a ^ b for a, b in zip(key, mask, strict=True))
        self._signature = hmac.digest(server_key(mechanism, salted), signed, name)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

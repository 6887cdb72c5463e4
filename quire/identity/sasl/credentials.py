"""What is stored of a user's password for SCRAM. Pure.

Leaves storing it to `metadata.security`, and the exchange of messages to `scram`.

Format of the text: `salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>`, as
Kafka writes it in dumps.

Invariants: the password is not kept, and cannot be computed from what is kept; a text or a `repr`
of a credential that appears in a log does not show its keys.

Source: RFC 5802, section 3; RFC 7677; KIP-84, KIP-554.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""Kafka's limits, which Kafka's tools know: a request with more iterations costs the client time,
and one with less makes guessing cheap."""
ITERATIONS_DEFAULT: Final = ITERATIONS_MAX
"""Iterations of the users that `quire user` adds."""
SALT_BYTES: Final = 16
"""Length of the salts that Quire makes."""
SALT_BYTES_MAX: Final = 1_024

_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class ScramMechanism(StrEnum):
    """Variant of SCRAM."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """Name of the hash function in `hashlib`."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """Length of each key."""
        return hashlib.new(self.hash_name).digest_size


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is stored of one password, for one mechanism. Raises ValueError if a part is wrong."""

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def __post_init__(self) -> None:
        """Check the lengths and the iterations."""
        if not 0 < len(self.salt) <= SALT_BYTES_MAX:
            raise ValueError(f"a salt has 1 to {SALT_BYTES_MAX} B, not {len(self.salt)}")
        for key in (self.stored_key, self.server_key):
            if len(key) != self.mechanism.key_bytes:
                raise ValueError(f"a key of {self.mechanism} has {self.mechanism.key_bytes} B")
        check_iterations(self.iterations)

    @property
    def text(self) -> str:
        """The credential as it is stored."""
        salt, stored, server = (
            base64.b64encode(each).decode()
            for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def parse_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Parse the stored text. Raises ValueError."""
    parts = dict(each.partition("=")[::2] for each in text.split(","))
    if tuple(sorted(parts)) != tuple(sorted(_FIELDS)):
        raise ValueError(f"a credential has the fields {', '.join(_FIELDS)}")
    try:
        salt, stored, server = (
            base64.b64decode(parts[each], validate=True) for each in _FIELDS[:-1]
        )
        iterations = int(parts["iterations"])
    except (binascii.Error, ValueError):
        raise ValueError("a field of a credential is not base64, or not a number") from None
    return ScramCredential(mechanism, salt, stored, server, iterations)


def check_iterations(iterations: int) -> None:
    """Check a number of iterations. Raises ValueError."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"use {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations, not {iterations}")


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return RFC 5802's SaltedPassword. It takes milliseconds of processor time."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential for a SaltedPassword. Raises ValueError if a part does not fit."""
    if len(salted) != mechanism.key_bytes:
        raise ValueError(f"a salted password of {mechanism} has {mechanism.key_bytes} B")
    stored = hashlib.new(mechanism.hash_name, client_key(mechanism, salted)).digest()
    return ScramCredential(mechanism, salt, stored, server_key(mechanism, salted), iterations)


def new_credential(
    mechanism: ScramMechanism, password: str, rng: "Random", iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """Return the credential for a password, with a new salt. It takes milliseconds of processor
    time. `rng` is a `SystemRandom`, except in tests. Raises ValueError for other iterations.
    """
    salt = rng.randbytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return RFC 5802's ClientKey."""
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return RFC 5802's ServerKey."""
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)

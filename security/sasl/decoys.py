"""Credentials that stand for those of unknown users. Pure.

Leaves the exchange to `scram` and `plain`.

Invariants: a user that does not exist has the same decoy in each exchange, for the same secret. No
known password fits a decoy, and an exchange with one is refused even if its proof fits. The salt of
a decoy has a form that a tool gives to salts of users, the same for both mechanisms, and the decoy
has the iterations of that tool's users.

The secret is the same on all servers of a cluster and after restarts: otherwise a salt that changes
shows that the user does not exist. What is left: a user with other iterations than its tool's, or
with a salt of another form, can be distinguished from an unknown one. Where one tool has made all
users, a decoy of the form of another tool shows that its user does not exist.

Source: RFC 5802, section 9; Kafka's UserScramCredentialUpsertion, which makes salts.
"""

import hmac
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from security.sasl.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    check_iterations,
)

SECRET_BYTES_MIN: Final = 16
_HASH: Final = "sha512"
_TEXT_BITS: Final = 130
_TEXT_BYTES: Final = 17
_TEXT_DIGITS: Final = string.digits + string.ascii_lowercase


class SaltForm(Enum):
    """Form that a tool gives to salts; the value is the number of random bytes."""

    QUIRE = SALT_BYTES
    KAFKA_PYTHON = 24
    LIBRDKAFKA = 64
    KAFKA = _TEXT_BYTES
    """A number of 130 bits as text of digits and letters, by Java."""

    @property
    def iterations(self) -> int:
        """Iterations that users of the tool have, unless an operator chooses others."""
        return ITERATIONS_DEFAULT if self is SaltForm.QUIRE else ITERATIONS_MIN


@dataclass(frozen=True, slots=True)
class Decoys:
    """Source of decoys. Raises ValueError if a part is wrong."""

    secret: bytes = field(repr=False)
    iterations: int | None = None
    """Iterations of all decoys; None: those of the tool whose form the salt has."""
    salt_forms: Sequence[SaltForm] = tuple(SaltForm)
    """Forms that salts of real users have."""

    def __post_init__(self) -> None:
        """Check the parts."""
        if len(self.secret) < SECRET_BYTES_MIN:
            raise ValueError(f"the secret of the decoys has at least {SECRET_BYTES_MIN} B")
        if not self.salt_forms:
            raise ValueError("the salts of decoys need a form")
        if self.iterations is not None:
            check_iterations(self.iterations)

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the decoy of a user."""
        stored, server = (
            self._derive(purpose, user, mechanism, mechanism.key_bytes)
            for purpose in ("stored key", "server key")
        )
        form = self._form(user)
        iterations = self.iterations or form.iterations
        salt = self._salt(form, user, mechanism)
        return ScramCredential(mechanism, salt, stored, server, iterations)

    def _form(self, user: str) -> SaltForm:
        chosen = int.from_bytes(self._derive("form", user, "", 8)) % len(self.salt_forms)
        return self.salt_forms[chosen]

    def _salt(self, form: SaltForm, user: str, mechanism: ScramMechanism) -> bytes:
        salt = self._derive("salt", user, mechanism, form.value)
        if form is not SaltForm.KAFKA:
            return salt
        return _text(int.from_bytes(salt) % (1 << _TEXT_BITS)).encode()

    def _derive(self, purpose: str, user: str, mechanism: str, size: int) -> bytes:
        """Return bytes that only the secret, the user, the mechanism and the purpose decide."""
        made = b""
        while len(made) < size:
            label = f"{purpose}\0{mechanism}\0{len(made)}\0{user}"
            made += hmac.digest(self.secret, label.encode(), _HASH)
        return made[:size]


def _text(number: int) -> str:
    """Return a number as Java's `toString(36)` writes it."""
    digits = ""
    while number or not digits:
        number, digit = divmod(number, len(_TEXT_DIGITS))
        digits = _TEXT_DIGITS[digit] + digits
    return digits

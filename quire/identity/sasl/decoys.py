"""Credentials that stand for those of unknown users. Pure.

Leaves the exchange to `scram` and `plain`, and which forms users have to `credential_forms`.

Invariants: a user that does not exist has the same decoy in each exchange, for the same secret and
the same forms. No known password fits a decoy, and an exchange with one is refused even if its
proof fits. The decoys of both mechanisms have the salts' forms and the iterations of some user of
the cluster, and the decoy of a user that has the other mechanism alone has those of its credential.
The user is chosen by rendezvous hashing, so that few decoys change when a form appears or
disappears.

The secret is the same on all servers of a cluster and after restarts: otherwise a salt that changes
shows that the user does not exist. What is left: a form that few users have is the form of more
unknown names than known ones; and a decoy changes when its form disappears, or a new one is chosen
for it.

Source: RFC 5802, section 9; Kafka's UserScramCredentialUpsertion, which makes salts.
"""

import hashlib
import hmac
import string
from dataclasses import dataclass, field
from typing import Final

from quire.identity.sasl.credential_forms import TEXT_BITS, CredentialForm, CredentialForms, form_of
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism

SECRET_BYTES_MIN: Final = 16
_HASH: Final = "sha512"
_TEXT_BYTES: Final = 17
"""Bytes of a number of 130 bits."""
_TEXT_DIGITS: Final = string.digits + string.ascii_lowercase
_SCORE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Decoys:
    """Source of decoys. Raises ValueError if the secret is too short."""

    secret: bytes = field(repr=False)
    forms: CredentialForms = field(default_factory=CredentialForms)

    def __post_init__(self) -> None:
        """Check the secret."""
        if len(self.secret) < SECRET_BYTES_MIN:
            raise ValueError(f"the secret of the decoys has at least {SECRET_BYTES_MIN} B")

    def credential(
        self, user: str, mechanism: ScramMechanism, other: ScramCredential | None = None
    ) -> ScramCredential:
        """Return the decoy of a user. `other` is the credential of a user that has one for another
        mechanism.
        """
        stored, server = (
            self._derive(purpose, user, mechanism, mechanism.key_bytes)
            for purpose in ("stored key", "server key")
        )
        drawn = self._form(user, mechanism)  # takes its time for every name
        form = drawn if other is None else form_of(other)
        salt = self._salt(form, user, mechanism)
        return ScramCredential(mechanism, salt, stored, server, form.iterations)

    def _form(self, user: str, mechanism: ScramMechanism) -> CredentialForm:
        key = self._derive("form", user, "", hashlib.blake2b.MAX_KEY_SIZE)

        def score(ticket: bytes) -> bytes:
            return hashlib.blake2b(ticket, digest_size=_SCORE_BYTES, key=key).digest()

        chosen = max(self.forms.tickets, key=lambda each: score(each[0]))[1]
        return chosen[list(ScramMechanism).index(mechanism)]

    def _salt(self, form: CredentialForm, user: str, mechanism: ScramMechanism) -> bytes:
        if not form.is_text:
            return self._derive("salt", user, mechanism, form.salt_bytes)
        drawn = self._derive("salt", user, mechanism, _TEXT_BYTES)
        return _text(int.from_bytes(drawn) % (1 << TEXT_BITS)).encode()

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

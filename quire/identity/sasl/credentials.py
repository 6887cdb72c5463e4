"""What is stored of a user's password for SCRAM, and decoys for those of unknown users. Pure.

Format of the text: `salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>`, as
Kafka writes it in dumps.

Source: RFC 5802, section 3; RFC 7677; KIP-84, KIP-554; RFC 5802, section 9; Kafka's
UserScramCredentialUpsertion, which makes salts.
"""

import base64
import binascii
import hashlib
import hmac
import re
import string
from collections import Counter
from collections.abc import Iterable
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
    """What is stored of one password, for one mechanism. Raises ValueError if a part is wrong.

    The password is not kept, and cannot be computed from what is kept; a text or a `repr` of a
    credential that appears in a log does not show its keys.
    """

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
            base64.b64encode(secret).decode()
            for secret in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def parse_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Parse the stored text. Raises ValueError."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if tuple(sorted(parts)) != tuple(sorted(_FIELDS)):
        raise ValueError(f"a credential has the fields {', '.join(_FIELDS)}")
    try:
        salt, stored, server = (
            base64.b64decode(parts[name], validate=True) for name in _FIELDS[:-1]
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


FORMS_MAX: Final = 16
"""Maximum number of users' forms that have tickets: those of the most users."""
TEXT_BITS: Final = 130
_TEXT_BYTES: Final = 26
_TEXT_BYTES_MIN: Final = 22
"""A number of 130 random bits has fewer digits less than once in a million."""
_TEXT: Final = re.compile(rb"[0-9a-z]+")


@dataclass(frozen=True, slots=True, order=True)
class CredentialForm:
    """What a client sees of a credential, besides its random part. Raises ValueError."""

    salt_bytes: int
    is_text: bool
    """Whether the salt is a number of 130 bits as text of digits and letters, as Java writes it.
    Such salts have different lengths, and `salt_bytes` is the greatest.
    """
    iterations: int

    def __post_init__(self) -> None:
        """Check the parts."""
        if self.salt_bytes <= 0:
            raise ValueError("a salt has at least 1 B")
        check_iterations(self.iterations)


UserForms = tuple[CredentialForm, CredentialForm]
"""Forms of a user's credentials, in the order of `ScramMechanism`. A credential that the user does
not have counts as one like the other.
"""
QUIRE: Final = CredentialForm(SALT_BYTES, is_text=False, iterations=ITERATIONS_DEFAULT)
KAFKA: Final = CredentialForm(_TEXT_BYTES, is_text=True, iterations=ITERATIONS_MIN)
KAFKA_PYTHON: Final = CredentialForm(24, is_text=False, iterations=ITERATIONS_MIN)
LIBRDKAFKA: Final = CredentialForm(64, is_text=False, iterations=ITERATIONS_MIN)
TOOLS: Final = (QUIRE, KAFKA, KAFKA_PYTHON, LIBRDKAFKA)
"""Forms of the tools that make users."""


def form_of(credential: ScramCredential) -> CredentialForm:
    """Return the form of a credential."""
    salt = credential.salt
    is_text = _TEXT_BYTES_MIN <= len(salt) <= _TEXT_BYTES and _TEXT.fullmatch(salt) is not None
    size = _TEXT_BYTES if is_text else len(salt)
    return CredentialForm(size, is_text, credential.iterations)


def _forms_of(credentials: Iterable[ScramCredential]) -> UserForms | None:
    """Return the forms of a user; None without credentials."""
    forms = {credential.mechanism: form_of(credential) for credential in credentials}
    if not forms:
        return None
    only = next(iter(forms.values()))
    first, second = (forms.get(mechanism, only) for mechanism in ScramMechanism)
    return first, second


class CredentialForms:
    """Forms of the users that exist now; those of all tools while there is none.

    The forms of a user, one for each mechanism, have a ticket for each binary digit of the number
    of users with them, so the tickets change only when such forms appear, disappear, or their
    number doubles or halves.
    """

    def __init__(self, only: Iterable[CredentialForm] = ()) -> None:
        """Begin with one user of each form in `only`, the same for both mechanisms."""
        self._counts = Counter[UserForms]((form, form) for form in only)
        self._tickets: tuple[tuple[bytes, UserForms], ...] | None = None

    def change(self, before: Iterable[ScramCredential], after: Iterable[ScramCredential]) -> None:
        """Note the credentials of one user before and after a change."""
        old, new = _forms_of(before), _forms_of(after)
        if old is not None:
            self._counts[old] -= 1
        if new is not None:
            self._counts[new] += 1
        self._counts = +self._counts
        self._tickets = None

    @property
    def tickets(self) -> tuple[tuple[bytes, UserForms], ...]:
        """Each ticket with its forms; no two tickets are equal."""
        if self._tickets is None:
            counts = self._counts or Counter[UserForms]((form, form) for form in TOOLS)
            most = sorted(counts, key=lambda form: (-counts[form].bit_length(), form))[:FORMS_MAX]
            self._tickets = tuple(
                (f"{_text(forms)} {number}".encode(), forms)
                for forms in most
                for number in range(counts[forms].bit_length())
            )
        return self._tickets


def _text(forms: UserForms) -> str:
    return " ".join(
        f"{form.salt_bytes} {form.is_text} {form.iterations}" for form in dict.fromkeys(forms)
    )


SECRET_BYTES_MIN: Final = 16
_HASH: Final = "sha512"
_NUMBER_BYTES: Final = 17
"""Bytes of a number of 130 bits."""
_TEXT_DIGITS: Final = string.digits + string.ascii_lowercase
_SCORE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Decoys:
    """Source of decoys. Raises ValueError if the secret is too short.

    A user that does not exist has the same decoy in each exchange, for the same secret and the same
    forms. No known password fits a decoy, and an exchange with one is refused even if its proof
    fits. The decoys of both mechanisms have the salts' forms and the iterations of some user of the
    cluster, and the decoy of a user that has the other mechanism alone has those of its credential.
    The user is chosen by rendezvous hashing, so that few decoys change when a form appears or
    disappears.

    The secret is the same on all servers of a cluster and after restarts: otherwise a salt that
    changes shows that the user does not exist. What is left: a form that few users have is the form
    of more unknown names than known ones; and a decoy changes when its form disappears, or a new
    one is chosen for it.
    """

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

        chosen = max(self.forms.tickets, key=lambda pair: score(pair[0]))[1]
        return chosen[list(ScramMechanism).index(mechanism)]

    def _salt(self, form: CredentialForm, user: str, mechanism: ScramMechanism) -> bytes:
        if not form.is_text:
            return self._derive("salt", user, mechanism, form.salt_bytes)
        drawn = self._derive("salt", user, mechanism, _NUMBER_BYTES)
        return _base_36(int.from_bytes(drawn) % (1 << TEXT_BITS)).encode()

    def _derive(self, purpose: str, user: str, mechanism: str, size: int) -> bytes:
        """Return bytes that only the secret, the user, the mechanism and the purpose decide."""
        made = b""
        while len(made) < size:
            label = f"{purpose}\0{mechanism}\0{len(made)}\0{user}"
            made += hmac.digest(self.secret, label.encode(), _HASH)
        return made[:size]


def _base_36(number: int) -> str:
    """Return a number as Java's `toString(36)` writes it."""
    digits = ""
    while number or not digits:
        number, digit = divmod(number, len(_TEXT_DIGITS))
        digits = _TEXT_DIGITS[digit] + digits
    return digits

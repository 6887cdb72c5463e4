"""Forms of the credentials of a cluster's users: what clients see of them before a login. Pure.

Leaves decoys of these forms to `decoys`.

Invariant: the forms of a user, one for each mechanism, have a ticket for each binary digit of the
number of users with them, so the tickets change only when such forms appear, disappear, or their
number doubles or halves.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quire.identity.sasl.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    check_iterations,
)

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
    found = {each.mechanism: form_of(each) for each in credentials}
    if not found:
        return None
    only = next(iter(found.values()))
    first, second = (found.get(each, only) for each in ScramMechanism)
    return first, second


class CredentialForms:
    """Forms of the users that exist now; those of all tools while there is none."""

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
            most = sorted(counts, key=lambda each: (-counts[each].bit_length(), each))[:FORMS_MAX]
            self._tickets = tuple(
                (f"{_text(forms)} {number}".encode(), forms)
                for forms in most
                for number in range(counts[forms].bit_length())
            )
        return self._tickets


def _text(forms: UserForms) -> str:
    return " ".join(
        f"{each.salt_bytes} {each.is_text} {each.iterations}" for each in dict.fromkeys(forms)
    )

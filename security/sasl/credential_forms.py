"""Forms of the credentials of a cluster's users: what clients see of them before a login. Pure.

Leaves decoys of these forms to `decoys`.

Invariant: a form has a ticket for each binary digit of its number of credentials, so the tickets
change only when a form appears, disappears, or its number doubles or halves.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from security.sasl.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    check_iterations,
)

FORMS_MAX: Final = 16
"""Maximum number of forms that have tickets: those of the most credentials."""
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


class CredentialForms:
    """Forms of the credentials that exist now; those of all tools while there is none."""

    def __init__(self, only: Iterable[CredentialForm] = ()) -> None:
        """Begin with one credential of each form in `only`."""
        self._counts = Counter(only)
        self._tickets: tuple[tuple[bytes, CredentialForm], ...] | None = None

    def change(self, removed: Iterable[ScramCredential], added: Iterable[ScramCredential]) -> None:
        """Note credentials that were removed and added."""
        self._counts.subtract(map(form_of, removed))
        self._counts.update(map(form_of, added))
        self._counts = +self._counts
        self._tickets = None

    @property
    def tickets(self) -> tuple[tuple[bytes, CredentialForm], ...]:
        """Each ticket with its form; no two tickets are equal."""
        if self._tickets is None:
            counts = self._counts or Counter(TOOLS)
            most = sorted(counts, key=lambda each: (-counts[each].bit_length(), each))[:FORMS_MAX]
            self._tickets = tuple(
                (f"{form.salt_bytes} {form.is_text} {form.iterations} {number}".encode(), form)
                for form in most
                for number in range(counts[form].bit_length())
            )
        return self._tickets

"""Errors of identities and certificates."""

from typing import Any, ClassVar


class SecurityError(Exception):
    """A certificate, a key or a secret cannot be used."""

    retriable: ClassVar[bool] = False


class CertificateError(SecurityError):
    """A file of certificates or keys is missing, is not readable, or does not fit."""


class SecretError(SecurityError):
    """A file is missing, empty or too long, or has a secret and is open to other users; see `path`
    and `why`.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the file {path} cannot be used: {why}")
        self.path = path
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:  # type: ignore[explicit-override]
        """Return how to make the error again: `pickle` would pass only the text to `__init__`."""
        return type(self), (self.path, self.why)


class ClientFileError(SecurityError):
    """A client's file cannot be read, or has something that it cannot have."""

"""Errors of identities and certificates."""

from typing import ClassVar


class SecurityError(Exception):
    """A certificate, a key or a secret cannot be used."""

    retriable: ClassVar[bool] = False


class CertificateError(SecurityError):
    """A file of certificates or keys is missing, is not readable, or does not fit."""


class SecretError(SecurityError):
    """A file with a secret is missing, empty, or readable by others."""


class ClientFileError(SecurityError):
    """A client's file cannot be read, or has something that it cannot have."""

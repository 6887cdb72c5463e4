"""Errors of identities, certificates and authentication."""

from collections.abc import Sequence
from typing import ClassVar

from quire.copyable import CopyableError


class SecurityError(CopyableError):
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


class SaslError(SecurityError):
    """An authentication failed, or a message of it has a wrong form.

    The text is for the other side, and never shows whether a user exists. `why` is for the audit
    log of this side. Neither has a secret in it.
    """

    def __init__(self, text: str, why: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.why = why or text


class SaslMechanismError(SecurityError):
    """A client asks for a mechanism that the server does not offer; see `enabled`."""

    def __init__(self, enabled: Sequence[str]) -> None:
        super().__init__(
            f"the server does not offer this SASL mechanism: use {' or '.join(enabled)}"
        )
        self.enabled = tuple(enabled)


class TokenError(SecurityError):
    """A token is refused; the text is for the audit log, and has nothing secret of the token."""


class JwksError(SecurityError):
    """A JWKS document cannot be read, or has no key that can be used."""


class ClientFileError(SecurityError):
    """A client's file cannot be read, or has something that it cannot have."""

"""Login of a client at brokers and bookies: the mechanism, the user, and its password's file.

Invariant: the password is read when it is used, from a file that no user but its owner may read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Final

from quire.identity.errors import ClientFileError
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.mechanism import Mechanism, RunSlow, SaslClientExchange, new_nonce
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.scram import ScramClient
from quire.identity.secret_files import read_secret

MECHANISMS: Final = (Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256, Mechanism.PLAIN)
"""Mechanisms of Quire's own clients."""
PLAIN_NEEDS_TLS: Final = (
    "PLAIN sends the password as it is, and this connection has no TLS: use SCRAM-SHA-512, or add"
    " [tls] to the client's file"
)


@dataclass(frozen=True, slots=True)
class SaslAccess:
    """How a client logs in."""

    mechanism: Mechanism
    user: str
    password_file: str

    @property
    def password(self) -> str:
        """Password of the user. Raises SecretError."""
        return read_secret(self.password_file)

    def begin(
        self, run_slow: RunSlow, nonce: Callable[[], str] = lambda: new_nonce(SystemRandom())
    ) -> SaslClientExchange:
        """Begin a login. Raises SecurityError."""
        if self.mechanism is Mechanism.PLAIN:
            return PlainClient(self.user, self.password)
        mechanism = ScramMechanism(self.mechanism.value)
        return ScramClient(mechanism, self.user, self.password, nonce(), run_slow)


def sasl_access(mechanism: str, user: str, password_file: str) -> SaslAccess:
    """Return how a client logs in. Raises ClientFileError."""
    if mechanism not in MECHANISMS:
        raise ClientFileError(f"[sasl] needs a mechanism: one of {', '.join(MECHANISMS)}")
    if not (user and password_file):
        raise ClientFileError("[sasl] needs user and password_file")
    return SaslAccess(Mechanism(mechanism), user, password_file)

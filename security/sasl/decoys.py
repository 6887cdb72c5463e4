"""Credentials that stand for those of unknown users. Pure.

Leaves the exchange to `scram` and `plain`.

Invariants: a user that does not exist has the same decoy in each exchange, for the same secret. No
known password fits a decoy, and an exchange with one is refused even if its proof fits.

The secret is the same on all servers of a cluster and after restarts: otherwise a salt that changes
shows that the user does not exist. A salt's length and the iterations should be those of most
users: a user with others can be distinguished from an unknown one.

Source: RFC 5802, section 9.
"""

import hmac
from dataclasses import dataclass, field
from typing import Final

from security.sasl.credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    SALT_BYTES_MAX,
    ScramCredential,
    ScramMechanism,
    check_iterations,
)

SECRET_BYTES_MIN: Final = 16
_HASH: Final = "sha512"


@dataclass(frozen=True, slots=True)
class Decoys:
    """Source of decoys. Raises ValueError if a part is wrong."""

    secret: bytes = field(repr=False)
    iterations: int = ITERATIONS_MIN
    salt_bytes: int = SALT_BYTES

    def __post_init__(self) -> None:
        """Check the parts."""
        if len(self.secret) < SECRET_BYTES_MIN:
            raise ValueError(f"the secret of the decoys has at least {SECRET_BYTES_MIN} B")
        if not 0 < self.salt_bytes <= SALT_BYTES_MAX:
            raise ValueError(f"a salt has 1 to {SALT_BYTES_MAX} B, not {self.salt_bytes}")
        check_iterations(self.iterations)

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the decoy of a user."""
        stored, server = (
            self._derive(purpose, user, mechanism, mechanism.key_bytes)
            for purpose in ("stored key", "server key")
        )
        salt = self._derive("salt", user, mechanism, self.salt_bytes)
        return ScramCredential(mechanism, salt, stored, server, self.iterations)

    def _derive(self, purpose: str, user: str, mechanism: str, size: int) -> bytes:
        """Return bytes that only the secret, the user, the mechanism and the purpose decide."""
        made = b""
        while len(made) < size:
            label = f"{purpose}\0{mechanism}\0{len(made)}\0{user}"
            made += hmac.digest(self.secret, label.encode(), _HASH)
        return made[:size]

"""Mechanisms that a server offers, and the begin of an exchange.

Leaves each mechanism to the module of its name, and the connections to the broker.

Invariant: a mechanism that is not enabled never begins, even if its parts are there.

Source: RFC 4422, section 3.2; KIP-43, KIP-84, KIP-255.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from quire.identity.errors import SaslMechanismError
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.decoys import Decoys
from quire.identity.sasl.mechanism import Mechanism, RunSlow, SaslExchange
from quire.identity.sasl.nonces import new_nonce
from quire.identity.sasl.oauthbearer import OAuthBearerServer, VerifyToken
from quire.identity.sasl.plain import PlainServer
from quire.identity.sasl.scram import FindCredential, ScramServer


@dataclass(frozen=True, slots=True)
class SaslParts:
    """What the mechanisms need."""

    find: FindCredential
    decoys: Decoys
    run_slow: RunSlow
    rng: Random
    """A `SystemRandom`, except in tests."""
    verify_token: VerifyToken | None = None
    """Needed by OAUTHBEARER alone."""


class SaslAuthenticator:
    """Begins exchanges. Raises ValueError if no mechanism is enabled, or a part of one is missing.

    `enabled` has the preferred mechanism first.
    """

    def __init__(self, enabled: Sequence[Mechanism], parts: SaslParts) -> None:
        if not enabled:
            raise ValueError(f"enable a mechanism of SASL: {', '.join(Mechanism)}")
        if Mechanism.OAUTHBEARER in enabled and parts.verify_token is None:
            raise ValueError("OAUTHBEARER needs rules for tokens: add them, or disable it")
        self.enabled = tuple(dict.fromkeys(enabled))
        self._parts = parts

    def begin(self, name: str) -> SaslExchange:
        """Begin an exchange of the mechanism that a client names. Raises SaslMechanismError."""
        if name not in self.enabled:
            raise SaslMechanismError(self.enabled)
        parts, mechanism = self._parts, Mechanism(name)
        match mechanism:
            case Mechanism.PLAIN:
                return PlainServer(parts.find, parts.decoys, parts.run_slow)
            case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
                nonce = new_nonce(parts.rng)
                return ScramServer(ScramMechanism(mechanism.value), parts.find, parts.decoys, nonce)
            case Mechanism.OAUTHBEARER:
                assert parts.verify_token is not None
                return OAuthBearerServer(parts.verify_token)

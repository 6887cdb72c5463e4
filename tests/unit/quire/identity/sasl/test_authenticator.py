"""The mechanisms of a server: which begin, and which are refused."""

import pickle
from random import Random, SystemRandom

import pytest

from quire.identity.errors import SaslMechanismError
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.jwks import JwksCache
from quire.identity.sasl.mechanism import Mechanism, SaslClientExchange, new_nonce
from quire.identity.sasl.oauthbearer import OAuthBearerClient
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl.sessions import SaslAuthenticator, SaslParts
from quire.identity.sasl.tokens import TokenRules, TokenVerifier
from tests.support.security import token_parts
from tests.support.security.sasl_parts import DECOYS, PASSWORD, authenticate, find, run_here
from tests.support.security.token_parts import AUDIENCE, ISSUER, NOW_S, token


def parts() -> SaslParts:
    async def read() -> bytes:
        return token_parts.jwks(token_parts.rsa_jwk())

    keys = JwksCache(read, lambda: 0.0)
    verifier = TokenVerifier(TokenRules(ISSUER, AUDIENCE), keys.find, lambda: NOW_S)
    return SaslParts(find, DECOYS, run_here, SystemRandom(), verifier.verify)


def client(mechanism: Mechanism) -> tuple[SaslClientExchange, str]:
    """Return a client of a mechanism, and its user."""
    match mechanism:
        case Mechanism.PLAIN:
            return PlainClient("user", PASSWORD), "user"
        case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
            scram = ScramMechanism(mechanism.value)
            nonce = new_nonce(SystemRandom())
            return ScramClient(scram, "user", PASSWORD, nonce, run_here), "user"
        case Mechanism.OAUTHBEARER:
            return OAuthBearerClient(token()), "alice"


@pytest.mark.parametrize("mechanism", list(Mechanism))
async def test_every_mechanism_authenticates(mechanism: Mechanism) -> None:
    exchange = SaslAuthenticator(list(Mechanism), parts()).begin(mechanism.value)
    assert not exchange.is_complete
    asking, user = client(mechanism)
    await authenticate(asking, exchange)
    assert exchange.principal == Principal(user)
    ends = exchange.expires_at_s
    assert ends == (NOW_S + 300 if mechanism is Mechanism.OAUTHBEARER else None)


@pytest.mark.parametrize("name", ["PLAIN", "OAUTHBEARER", "GSSAPI", "scram-sha-256", "", "\0" * 99])
def test_other_mechanisms_are_refused_with_those_that_are_enabled(name: str) -> None:
    enabled = [Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256]
    with pytest.raises(SaslMechanismError, match="use SCRAM-SHA-512 or SCRAM-SHA-256") as caught:
        SaslAuthenticator(enabled, parts()).begin(name)
    assert caught.value.enabled == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    assert pickle.loads(pickle.dumps(caught.value)).enabled == caught.value.enabled


async def test_each_exchange_has_its_own_nonce() -> None:
    authenticator = SaslAuthenticator([Mechanism.SCRAM_SHA_256], parts())
    answers = [
        await authenticator.begin("SCRAM-SHA-256").respond(b"n,,n=user,r=abc") for _ in range(3)
    ]
    assert len({answer.split(b",")[0] for answer in answers}) == 3


def test_a_mechanism_needs_its_parts() -> None:
    few = SaslParts(find, DECOYS, run_here, Random(1))
    with pytest.raises(ValueError, match="OAUTHBEARER needs rules for tokens"):
        SaslAuthenticator(list(Mechanism), few)
    with pytest.raises(ValueError, match="enable a mechanism"):
        SaslAuthenticator([], few)

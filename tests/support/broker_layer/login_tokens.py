"""Logins with tokens, for tests that do not sign any."""

from quire.identity.errors import TokenError
from quire.identity.principal import Principal
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.oauthbearer import VerifiedToken
from tests.support.broker_layer.login_setting import WALL_CLOCK_MS, LoginSetting


async def verify(token: str) -> VerifiedToken:
    """Accept `USER/SECONDS` as a token of that user which expires in that time."""
    user, _, seconds = token.partition("/")
    if not seconds:
        raise TokenError("it is not a token")
    return VerifiedToken(Principal(user), WALL_CLOCK_MS / 1_000 + float(seconds))


def with_tokens(session_ms_max: int = 0) -> LoginSetting:
    """Return a listener that takes tokens of `verify`, and SCRAM."""
    return LoginSetting(
        mechanisms=[Mechanism.OAUTHBEARER, Mechanism.SCRAM_SHA_256],
        verify_token=verify,
        session_ms_max=session_ms_max,
    )

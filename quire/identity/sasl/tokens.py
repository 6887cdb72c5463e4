"""Verification of JSON web tokens: signature, issuer, audience and times.

Invariants: only algorithms with public keys are accepted, whatever a token says, and a key only for
its own algorithms. Keys come from the operator's document, never from a token. Claims are looked at
only after the signature. A header that the verifier would have to understand (`crit`) is refused.

Source: RFC 7519; RFC 8725; KIP-768.
"""

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import jwt

from quire.identity.errors import TokenError
from quire.identity.principal import Principal
from quire.identity.sasl.jwks import ALGORITHMS, VerificationKey
from quire.identity.sasl.mechanism import name_problem
from quire.identity.sasl.oauthbearer import VerifiedToken

TOKEN_BYTES_MAX: Final = 16_384
LEEWAY_S: Final = 30.0
"""Largest accepted difference between the clocks of this server and of the issuer."""
TIME_S_MAX: Final = 2**40
"""A time of Unix beyond it is a mistake."""
SHOWN_CHARACTERS: Final = 64

FindKey = Callable[[str | None, str], Awaitable[VerificationKey | None]]
"""Returns the key for a `kid`, or for a token without one, and an algorithm."""
_NO_TOKEN: Final = "the token is not a signed JSON web token"
_UNREADABLE: Final = (jwt.PyJWTError, ValueError, TypeError, KeyError, RecursionError)
"""What the library raises for damaged tokens; claims of many brackets cause the last one."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token has to have. Raises ValueError if a part is wrong."""

    issuer: str
    audience: str
    principal_claim: str = "sub"
    algorithms: tuple[str, ...] = ALGORITHMS

    def __post_init__(self) -> None:
        """Check the parts."""
        if not (self.issuer and self.audience and self.principal_claim):
            raise ValueError("tokens need an issuer, an audience and a claim for the principal")
        unknown = [algorithm for algorithm in self.algorithms if algorithm not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise ValueError(
                f"{', '.join(unknown) or 'nothing'} cannot sign tokens: use {', '.join(ALGORITHMS)}"
            )


class TokenVerifier:
    """Verifies tokens. `clock_s` is the wall clock, in seconds of Unix time."""

    def __init__(self, rules: TokenRules, find: FindKey, clock_s: Callable[[], float]) -> None:
        self._rules = rules
        self._find = find
        self._clock_s = clock_s

    async def verify(self, token: str) -> VerifiedToken:
        """Verify a token. Raises TokenError, and JwksError if there are no keys."""
        if len(token) > TOKEN_BYTES_MAX:
            raise TokenError(f"the token has more than {TOKEN_BYTES_MAX} B")
        kid, algorithm = self._read_header(token)
        key = await self._find(kid, algorithm)
        if key is None:
            raise TokenError(
                f"no key of the issuer has the kid {_shown(kid)} and is for {algorithm}"
            )
        assert algorithm in key.algorithms
        return self._check(_verified_claims(token, key, algorithm))

    def _read_header(self, token: str) -> tuple[str | None, str]:
        """Return the key's name and the algorithm."""
        part = token.partition(".")[0]
        try:
            header = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise TokenError(_NO_TOKEN)
        kid, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in self._rules.algorithms:
            raise TokenError(f"the algorithm {_shown(algorithm)} is not accepted")
        if "crit" in header:
            raise TokenError("the token has critical headers, which this server does not know")
        if not isinstance(kid, str | None):
            raise TokenError("the kid of the token is not a text")
        return kid, algorithm

    def _check(self, claims: dict[str, object]) -> VerifiedToken:
        """Check the claims of a token whose signature is right."""
        rules, now_s = self._rules, self._clock_s()
        if claims.get("iss") != rules.issuer:
            raise TokenError(f"the issuer is {_shown(claims.get('iss'))}, not {rules.issuer!r}")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if rules.audience not in audiences:
            raise TokenError(f"the audience is {_shown(audience)}, not {rules.audience!r}")
        expires_at_s = _time(claims, "exp")
        if now_s >= expires_at_s + LEEWAY_S:
            raise TokenError(f"the token expired {now_s - expires_at_s:.0f} s ago")
        if "nbf" in claims and now_s < (begins_at_s := _time(claims, "nbf")) - LEEWAY_S:
            raise TokenError(f"the token is valid only in {begins_at_s - now_s:.0f} s")
        name = claims.get(rules.principal_claim)
        if not isinstance(name, str):
            raise TokenError(f"the claim {rules.principal_claim!r} is missing, or not a text")
        if problem := name_problem(name):
            raise TokenError(f"{problem}, in the claim {rules.principal_claim!r}")
        return VerifiedToken(Principal(name), expires_at_s)


def _verified_claims(token: str, key: VerificationKey, algorithm: str) -> dict[str, object]:
    """Return the claims if the signature is right; their values are not checked."""
    try:
        claims: dict[str, object] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            options={
                "verify_signature": True,
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_aud": False,
                "verify_iss": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
    except jwt.InvalidSignatureError:
        raise TokenError("the signature of the token is wrong") from None
    except _UNREADABLE:
        raise TokenError(_NO_TOKEN) from None
    return claims


def _time(claims: dict[str, object], name: str) -> float:
    value = claims.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= TIME_S_MAX
    ):
        raise TokenError(f"the claim {name!r} is missing, or not a time")
    return float(value)


def _shown(value: object) -> str:
    """Return a value of a token as far as a log shows it."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."

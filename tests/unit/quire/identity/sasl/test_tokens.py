"""Tokens that are accepted, and every kind that is refused."""

import functools
import json

import pytest

from quire.identity.errors import TokenError
from quire.identity.principal import Principal
from quire.identity.sasl.jwks import ALGORITHMS, VerificationKey, find_key, parse_jwks
from quire.identity.sasl.oauthbearer import VerifiedToken
from quire.identity.sasl.tokens import TOKEN_BYTES_MAX, TokenRules, TokenVerifier
from tests.support.security import token_parts as parts
from tests.support.security.token_parts import AUDIENCE, ISSUER, NOW_S, claims, encode, token

RULES = TokenRules(ISSUER, AUDIENCE)
KEYS = parse_jwks(
    parts.jwks(parts.rsa_jwk(), *(parts.ec_jwk(curve) for curve in ("P-256", "P-384", "P-521")))
)


async def verify(
    made: str, rules: TokenRules = RULES, keys: tuple[VerificationKey, ...] = KEYS
) -> VerifiedToken:
    async def find(kid: str | None, algorithm: str) -> VerificationKey | None:
        return find_key(keys, kid, algorithm)

    return await TokenVerifier(rules, find, lambda: NOW_S).verify(made)


@pytest.mark.parametrize(
    ("algorithm", "kid", "sign"),
    [
        ("RS256", "rsa-1", parts.sign_rs256),
        ("PS256", "rsa-1", parts.sign_ps256),
        ("ES256", "P-256", parts.sign_es),
        ("ES384", "P-384", functools.partial(parts.sign_es, curve="P-384")),
        ("ES512", "P-521", functools.partial(parts.sign_es, curve="P-521")),
    ],
)
async def test_every_kind_of_signature_is_accepted(
    algorithm: str, kid: str, sign: parts.Sign
) -> None:
    verified = await verify(token(alg=algorithm, kid=kid, sign=sign))
    assert verified == VerifiedToken(Principal("alice"), NOW_S + 300)


@pytest.mark.parametrize(
    "payload",
    [
        claims(aud=["other", AUDIENCE]),
        claims(exp=NOW_S - 29),
        claims(nbf=NOW_S + 29),
        claims(nbf=NOW_S, iat=NOW_S + 1_000, jti="1", scope="a b"),
    ],
)
async def test_other_claims_that_are_accepted(payload: dict[str, object]) -> None:
    assert (await verify(token(payload))).principal == Principal("alice")


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (claims(exp=NOW_S - 30), "expired 30 s ago"),
        (claims(exp=None), "'exp' is missing"),
        (claims(exp="2000000000"), "'exp' is missing, or not a time"),
        (claims(exp=True), "'exp' is missing, or not a time"),
        (claims(exp=float("inf")), "'exp' is missing, or not a time"),
        (claims(exp=float("nan")), "'exp' is missing, or not a time"),
        (claims(exp=10**400), "'exp' is missing, or not a time"),
        (claims(nbf=NOW_S + 31), "valid only in 31 s"),
        (claims(nbf="soon"), "'nbf' is missing, or not a time"),
        (claims(aud="other"), "the audience is 'other', not 'quire'"),
        (claims(aud="quire2"), "the audience"),
        (claims(aud=["other"]), "the audience"),
        (claims(aud={AUDIENCE: 1}), "the audience"),
        (claims(aud=None), "the audience is None"),
        (claims(iss="https://other.example"), "the issuer"),
        (claims(iss=f"{ISSUER}/"), "the issuer"),
        (claims(iss=[ISSUER]), "the issuer"),
        (claims(iss=None), "the issuer is None"),
        (claims(sub=None), "'sub' is missing"),
        (claims(sub=5), "'sub' is missing, or not a text"),
        (claims(sub=""), "is empty"),
        (claims(sub="a\nb"), "control characters"),
        (claims(sub="a" * 256), "more than 255 characters"),
        (b"[]", "not a signed JSON web token"),
        (b"{", "not a signed JSON web token"),
        (b"\xff", "not a signed JSON web token"),
        (b"[" * 9_000, "not a signed JSON web token"),
        (b'{"exp": ' + b"9" * 5_000 + b"}", "not a signed JSON web token"),
    ],
)
async def test_claims_that_are_refused(payload: dict[str, object] | bytes, why: str) -> None:
    with pytest.raises(TokenError, match=why):
        await verify(token(payload))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"alg": "none"}, "algorithm 'none' is not accepted"),
        ({"alg": "None"}, "algorithm 'None' is not accepted"),
        ({"alg": None}, "algorithm None is not accepted"),
        ({"alg": ["RS256"]}, "is not accepted"),
        ({"alg": "HS256"}, "algorithm 'HS256' is not accepted"),
        ({"alg": "ES256"}, "no key of the issuer has the kid 'rsa-1' and is for ES256"),
        ({"alg": "PS256"}, "signature of the token is wrong"),
        ({"alg": "RS512"}, "signature of the token is wrong"),
        ({"kid": "unknown"}, "no key of the issuer has the kid 'unknown'"),
        ({"kid": "x" * 9_000}, "no key of the issuer has the kid 'x{63}\\.\\.\\."),
        ({"kid": 5}, "the kid of the token is not a text"),
        ({"crit": ["exp"], "exp": 1}, "critical headers"),
        ({"crit": []}, "critical headers"),
        ({"crit": ["b64"], "b64": False}, "critical headers"),
    ],
)
async def test_headers_that_are_refused(header: dict[str, object], why: str) -> None:
    with pytest.raises(TokenError, match=why):
        await verify(parts.token_with(header))


async def test_a_token_without_a_signature_is_refused() -> None:
    for made in (token(alg="none", sign=lambda _: b""), token(sign=lambda _: b"")):
        with pytest.raises(TokenError):
            await verify(made)


async def test_the_public_key_is_no_secret_of_hs256() -> None:
    document_key = json.dumps(parts.rsa_jwk()).encode()
    for secret in (parts.public_pem(), document_key):
        made = token(alg="HS256", sign=functools.partial(parts.sign_hs256, secret=secret))
        with pytest.raises(TokenError, match="'HS256' is not accepted"):
            await verify(made)


async def test_a_key_in_a_token_is_not_used() -> None:
    own = parts.rsa_key(number_of_key=2)
    sign = functools.partial(parts.sign_rs256, key=own)
    with pytest.raises(TokenError, match="signature of the token is wrong"):
        await verify(token(sign=sign, jwk=parts.rsa_jwk(own)))
    with pytest.raises(TokenError, match="no key of the issuer"):
        await verify(token(sign=sign, jwk=parts.rsa_jwk(own), kid="own"))


async def test_changed_tokens_are_refused() -> None:
    header, payload, signature = token().split(".")
    other = encode(json.dumps(claims(sub="admin")).encode())
    with pytest.raises(TokenError, match="signature of the token is wrong"):
        await verify(f"{header}.{other}.{signature}")
    swapped = token(claims(sub="admin")).split(".")[2]
    with pytest.raises(TokenError, match="signature of the token is wrong"):
        await verify(f"{header}.{payload}.{swapped}")


@pytest.mark.parametrize(
    "made",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d.e",
        "ä.b.c",
        f"{encode(b'[' * 9_000)}.{encode(b'{}')}.AAAA",
        f"{encode(b'[]')}.{encode(b'{}')}.AAAA",
        f"{encode(b'5')}.{encode(b'{}')}.AAAA",
    ],
)
async def test_what_is_no_token_is_refused(made: str) -> None:
    with pytest.raises(TokenError, match="not a signed JSON web token"):
        await verify(made)


async def test_a_huge_token_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(TokenError, match="more than 16384 B"):
        await verify(token(claims(filler="x" * TOKEN_BYTES_MAX)))


async def test_a_token_without_kid_needs_the_only_key_for_its_algorithm() -> None:
    assert (await verify(token(kid=None))).principal == Principal("alice")
    two = parse_jwks(
        parts.jwks(parts.rsa_jwk(), parts.rsa_jwk(parts.rsa_key(number_of_key=2), kid="rsa-2"))
    )
    with pytest.raises(TokenError, match="no key of the issuer has the kid None"):
        await verify(token(kid=None), keys=two)


async def test_the_claim_of_the_principal_is_the_operators_choice() -> None:
    rules = TokenRules(ISSUER, AUDIENCE, principal_claim="client_id")
    verified = await verify(token(claims(client_id="app")), rules)
    assert verified.principal == Principal("app")
    with pytest.raises(TokenError, match="'client_id' is missing"):
        await verify(token(), rules)


async def test_algorithms_are_the_operators_choice() -> None:
    with pytest.raises(TokenError, match="'RS256' is not accepted"):
        await verify(token(), TokenRules(ISSUER, AUDIENCE, algorithms=("ES256",)))


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512", "EdDSA", "rs256", ""])
def test_algorithms_without_a_public_key_cannot_be_chosen(algorithm: str) -> None:
    assert algorithm not in ALGORITHMS
    with pytest.raises(ValueError, match="cannot sign tokens"):
        TokenRules(ISSUER, AUDIENCE, algorithms=("RS256", algorithm))


@pytest.mark.parametrize(("issuer", "audience"), [("", AUDIENCE), (ISSUER, "")])
def test_rules_need_an_issuer_and_an_audience(issuer: str, audience: str) -> None:
    with pytest.raises(ValueError, match="need an issuer"):
        TokenRules(issuer, audience)


def test_rules_need_an_algorithm() -> None:
    with pytest.raises(ValueError, match="nothing cannot sign"):
        TokenRules(ISSUER, AUDIENCE, algorithms=())

"""Keys of a JWKS document that are used, and those that are left out."""

import pytest

from quire.identity.errors import JwksError
from quire.identity.sasl.jwks import DOCUMENT_BYTES_MAX, RSA_ALGORITHMS, find_key, parse_jwks
from tests.support.security.token_parts import ec_jwk, encode, jwks, number, rsa_jwk, rsa_key


def test_keys_have_the_algorithms_of_their_kind() -> None:
    keys = parse_jwks(jwks(rsa_jwk(), ec_jwk("P-256"), ec_jwk("P-384"), ec_jwk("P-521")))
    assert [(key.kid, key.algorithms) for key in keys] == [
        ("rsa-1", RSA_ALGORITHMS),
        ("P-256", ("ES256",)),
        ("P-384", ("ES384",)),
        ("P-521", ("ES512",)),
    ]


def test_a_key_may_be_for_one_algorithm() -> None:
    (key,) = parse_jwks(jwks(rsa_jwk(alg="PS384", use="sig", key_ops=["verify"], x5t="a")))
    assert key.algorithms == ("PS384",)
    assert find_key((key,), "rsa-1", "PS384") is key
    assert find_key((key,), "rsa-1", "RS256") is None


def test_the_name_decides_and_not_the_order() -> None:
    keys = parse_jwks(jwks(rsa_jwk(kid="a"), rsa_jwk(kid="b"), ec_jwk(kid="a")))
    found = find_key(keys, "b", "RS256")
    assert found is keys[1]
    assert find_key(keys, "a", "ES256") is keys[2]
    assert find_key(keys, None, "ES256") is keys[2]
    assert find_key(keys, None, "RS256") is None
    assert find_key(keys, "c", "RS256") is None


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"kty": "oct", "k": "AAAA", "kid": "a", "alg": "HS256"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
        {"kty": ["RSA"]},
        rsa_jwk(use="enc"),
        rsa_jwk(key_ops=["sign"]),
        rsa_jwk(key_ops="verify"),
        rsa_jwk(d="AAAA"),
        rsa_jwk(kid=5),
        rsa_jwk(alg="RSA-OAEP"),
        rsa_jwk(alg="none"),
        rsa_jwk(alg="HS256"),
        rsa_jwk(alg=["RS256"]),
        rsa_jwk(n="AAAA"),
        rsa_jwk(n=""),
        rsa_jwk(n="not base64"),
        rsa_jwk(n=None),
        rsa_jwk(n=number((1 << 8_200) + 1)),
        rsa_jwk(n="A" * 100_000),
        rsa_jwk(e=number(2)),
        rsa_jwk(e=number((1 << 40) + 1)),
        rsa_jwk(rsa_key(1_024)),
        ec_jwk(crv="secp256k1"),
        ec_jwk(crv="P-384"),
        ec_jwk(x=encode(bytes(32))),
        ec_jwk(y=None),
    ],
)
def test_keys_that_are_left_out(key: dict[str, object]) -> None:
    (kept,) = parse_jwks(jwks(key, ec_jwk(kid="kept")))
    assert kept.kid == "kept"
    with pytest.raises(JwksError, match="no public key for signatures"):
        parse_jwks(jwks(key))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no list `keys`"),
        (b"{}", "no list `keys`"),
        (b'{"keys": {}}', "no list `keys`"),
        (b'{"keys": [1, null, []]}', "no public key"),
        (b'{"keys": []}', "no public key"),
        (jwks(*[{}] * 101), "at most 100"),
        (b" " * (DOCUMENT_BYTES_MAX + 1), "more than 262144 B"),
    ],
)
def test_documents_that_are_refused(document: bytes, why: str) -> None:
    with pytest.raises(JwksError, match=why):
        parse_jwks(document)

"""Keys of an issuer, and tokens signed with them, right and wrong ones.

Leaves verifying to `quire.identity.sasl.tokens`.
"""

import base64
import functools
import json
from collections.abc import Callable, Mapping
from typing import Final

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

NOW_S: Final = 1_800_000_000.0
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "quire"
KID: Final = "rsa-1"

Sign = Callable[[bytes], bytes]


def encode(data: bytes) -> str:
    """Encode as the parts of tokens are encoded."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    """Encode a number as keys have it."""
    return encode(value.to_bytes((value.bit_length() + 7) // 8))


@functools.cache
def rsa_key(bits: int = 2_048, number_of_key: int = 1) -> rsa.RSAPrivateKey:
    """Return a key of an issuer; each number has its own."""
    del number_of_key
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


@functools.cache
def ec_key(curve: str = "P-256") -> ec.EllipticCurvePrivateKey:
    """Return a key of an issuer."""
    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    return ec.generate_private_key(curves[curve])


def rsa_jwk(key: rsa.RSAPrivateKey | None = None, **more: object) -> dict[str, object]:
    """Return the public key as a document has it."""
    numbers = (key or rsa_key()).public_key().public_numbers()
    return {"kty": "RSA", "kid": KID, "n": number(numbers.n), "e": number(numbers.e)} | more


def ec_jwk(curve: str = "P-256", **more: object) -> dict[str, object]:
    """Return the public key as a document has it."""
    numbers = ec_key(curve).public_key().public_numbers()
    size = (numbers.curve.key_size + 7) // 8
    x, y = encode(numbers.x.to_bytes(size)), encode(numbers.y.to_bytes(size))
    return {"kty": "EC", "kid": curve, "crv": curve, "x": x, "y": y} | more


def jwks(*keys: Mapping[str, object]) -> bytes:
    """Return a document."""
    return json.dumps({"keys": keys}).encode()


def public_pem() -> bytes:
    """Return the public RSA key as a file has it."""
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return rsa_key().public_key().public_bytes(encoding, form)


def sign_rs256(data: bytes, key: rsa.RSAPrivateKey | None = None) -> bytes:
    """Sign as RS256 does."""
    return (key or rsa_key()).sign(data, padding.PKCS1v15(), hashes.SHA256())


def sign_ps256(data: bytes) -> bytes:
    """Sign as PS256 does."""
    return rsa_key().sign(data, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())


def sign_es(data: bytes, curve: str = "P-256") -> bytes:
    """Sign as ES256, ES384 or ES512 does."""
    key = ec_key(curve)
    sizes = {"P-256": hashes.SHA256(), "P-384": hashes.SHA384(), "P-521": hashes.SHA512()}
    size = (key.curve.key_size + 7) // 8
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(sizes[curve])))
    return r.to_bytes(size) + s.to_bytes(size)


def sign_hs256(data: bytes, secret: bytes) -> bytes:
    """Sign as HS256 does."""
    made = hmac.HMAC(secret, hashes.SHA256())
    made.update(data)
    return made.finalize()


def claims(**changes: object) -> dict[str, object]:
    """Return claims that are accepted, with changes; a claim of None is left out."""
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW_S + 300} | changes
    return {name: value for name, value in made.items() if value is not None}


def token(
    payload: Mapping[str, object] | bytes | None = None,
    *,
    sign: Sign = sign_rs256,
    **header: object,
) -> str:
    """Return a token; a header of None is left out."""
    return token_with(header, payload, sign)


def token_with(
    header: Mapping[str, object],
    payload: Mapping[str, object] | bytes | None = None,
    sign: Sign = sign_rs256,
) -> str:
    """Return a token with headers of any name."""
    named = {"alg": "RS256", "kid": KID, "typ": "JWT", **header}
    first = json.dumps({name: value for name, value in named.items() if value is not None})
    body = payload if isinstance(payload, bytes) else json.dumps(payload or claims()).encode()
    signed = f"{encode(first.encode())}.{encode(body)}"
    return f"{signed}.{encode(sign(signed.encode()))}"

"""Public keys of a JWKS document, for signatures of tokens. Pure.

Leaves reading the document to `jwks_documents`, and when to read it again to `jwks_cache`.

Format: a JSON object with the list `keys`. A key has `kty`, which is `RSA` with `n` and `e`, or
`EC` with `crv`, `x` and `y`; and perhaps `kid`, `use`, `key_ops`, and `alg`.

Invariants: secret keys (`oct`) and private keys are never used, nor are keys that are too weak, or
whose use is not signatures: they are left out. Which algorithms a key is for follows from the key
and its `alg`, not from a token.

Source: RFC 7517; RFC 7518, section 6.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from quire.identity.errors import JwksError

DOCUMENT_BYTES_MAX: Final = 262_144
KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192
RSA_EXPONENT_MAX: Final = 2**32
NUMBER_CHARACTERS_MAX: Final = 2_048
"""A number of RSA_BITS_MAX has 1,366."""

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES: Final[dict[str, tuple[ec.EllipticCurve, str]]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}
ALGORITHMS: Final = (*RSA_ALGORITHMS, *(algorithm for _, algorithm in CURVES.values()))
"""Every algorithm of signatures that is accepted: each has a public key."""

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One public key."""

    kid: str | None
    algorithms: tuple[str, ...]
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey


def parse_jwks(document: bytes) -> tuple[VerificationKey, ...]:
    """Return the keys of a document that can be used. Raises JwksError if there is none."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise JwksError(f"the JWKS document has more than {DOCUMENT_BYTES_MAX} B")
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise JwksError("the JWKS document is not JSON") from None
    listed = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(listed, list):
        raise JwksError("the JWKS document has no list `keys`")
    if len(listed) > KEYS_MAX:
        raise JwksError(
            f"the JWKS document has {len(listed)} keys, and at most {KEYS_MAX} are read"
        )
    keys = tuple(
        key for each in listed if isinstance(each, dict) and (key := _key(each)) is not None
    )
    if not keys:
        raise JwksError(
            "the JWKS document has no public key for signatures: it needs an RSA key of "
            f"{RSA_BITS_MIN} bits or more, or one on the curves {', '.join(CURVES)}"
        )
    return keys


def find_key(
    keys: Sequence[VerificationKey], kid: str | None, algorithm: str
) -> VerificationKey | None:
    """Return the key that a token names. A token that names none has one only if exactly one key
    is for its algorithm.
    """
    suitable = [each for each in keys if algorithm in each.algorithms]
    if kid is None:
        return suitable[0] if len(suitable) == 1 else None
    return next((each for each in suitable if each.kid == kid), None)


def _key(listed: dict[str, object]) -> VerificationKey | None:
    """Return a key, or None if it cannot be used."""
    kid, operations = listed.get("kid"), listed.get("key_ops", ["verify"])
    is_for_signatures = (
        listed.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )
    if not is_for_signatures or "d" in listed or not isinstance(kid, str | None):
        return None
    try:
        match listed.get("kty"):
            case "RSA":
                key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey = _rsa_key(listed)
                algorithms: tuple[str, ...] = RSA_ALGORITHMS
            case "EC":
                curve, algorithm = CURVES[str(listed["crv"])]
                x, y = _number(listed, "x"), _number(listed, "y")
                key = ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
                algorithms = (algorithm,)
            case _:
                return None
    except (KeyError, ValueError, UnsupportedAlgorithm):
        return None
    if "alg" in listed:
        algorithms = tuple(each for each in algorithms if each == listed["alg"])
    return VerificationKey(kid, algorithms, key) if algorithms else None


def _rsa_key(listed: dict[str, object]) -> rsa.RSAPublicKey:
    modulus, exponent = _number(listed, "n"), _number(listed, "e")
    if not RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX or exponent > RSA_EXPONENT_MAX:
        raise ValueError("the key is too weak or too long")
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _number(listed: dict[str, object], name: str) -> int:
    text = str(listed[name])
    if len(text) > NUMBER_CHARACTERS_MAX or not _BASE64URL.fullmatch(text):
        raise ValueError(f"{name} is not base64url")
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))

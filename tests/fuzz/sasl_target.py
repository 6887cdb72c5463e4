"""Fuzz target for the exchanges of SASL: any messages in any order.

Leaves single refusals to the unit tests.

Format of an input: one byte for the mechanism, then messages with SEPARATOR between them, which
none of them has.

Invariants: nothing but a SaslError is raised; an exchange completes only with a proof of SAMPLES; a
server without users and keys completes none, and fails in the same step with the same text.
"""

import asyncio
import base64
from collections.abc import Awaitable
from random import Random
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism
from quire.identity.sasl.jwks import VerificationKey, find_key
from quire.identity.sasl.mechanism import Mechanism, SaslClientExchange, SaslExchange
from quire.identity.sasl.oauthbearer import OAuthBearerClient
from quire.identity.sasl.plain import PlainClient, parse_plain
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl.sessions import SaslAuthenticator, SaslParts
from quire.identity.sasl.tokens import TokenRules, TokenVerifier
from tests.fuzz.findings import require
from tests.fuzz.targets import ParserTarget
from tests.support.security import token_parts
from tests.support.security.sasl_parts import (
    DECOYS,
    PASSWORD,
    USERS,
    authenticate,
    find,
    run_here,
)

SEPARATOR: Final = b"\xff\xff"
MESSAGES_MAX: Final = 6
MECHANISMS: Final = tuple(Mechanism)


def sasl_target() -> ParserTarget:
    """Return the target of this module."""
    return ParserTarget("sasl", _check, SAMPLES, hostile=tuple(_hostile()), weight=0.25)


def _server(mechanism: Mechanism, *, has_users: bool) -> SaslExchange:
    """Begin an exchange whose nonce is the same every time."""

    def find_none(_user: str, _mechanism: ScramMechanism) -> ScramCredential | None:
        return None

    async def key(kid: str | None, algorithm: str) -> VerificationKey | None:
        return find_key(KEYS if has_users else (), kid, algorithm)

    rules = TokenRules(token_parts.ISSUER, token_parts.AUDIENCE)
    verifier = TokenVerifier(rules, key, lambda: token_parts.NOW_S)
    parts = SaslParts(
        find if has_users else find_none, DECOYS, run_here, Random(1), verifier.verify
    )
    return SaslAuthenticator(MECHANISMS, parts).begin(mechanism.value)


def _check(data: bytes, origin: bytes, is_sealed: bool) -> bool:
    del origin, is_sealed
    mechanism = MECHANISMS[(data[0] if data else 0) % len(MECHANISMS)]
    messages = data[1:].split(SEPARATOR)[:MESSAGES_MAX]
    known, unknown = (_server(mechanism, has_users=each) for each in (True, False))
    answers = _answers(known, messages)
    others = _answers(unknown, messages)
    require(not unknown.is_complete, "a server without users completes no exchange")
    if known.is_complete:
        require(_is_proved(mechanism, data, messages), "an exchange completed without a proof")
        require(known.principal.name in (*USERS, "alice"), "the principal is known")
        return True
    require(
        mechanism is Mechanism.OAUTHBEARER or _texts(answers) == _texts(others),
        "an unknown user fails as a known one does",
    )
    return isinstance(answers[0], bytes)


def _answers(server: SaslExchange, messages: list[bytes]) -> list[bytes | SaslError]:
    """Feed messages to a server; stop once it is complete."""
    answers: list[bytes | SaslError] = []
    for message in messages:
        try:
            answers.append(_at_once(server.respond(message)))
        except SaslError as error:
            require(not server.is_complete, "an exchange that failed is not complete")
            answers.append(error)
        if server.is_complete:
            break
    return answers


def _texts(answers: list[bytes | SaslError]) -> list[str | int]:
    """Return the texts of errors, and the lengths of answers."""
    return [answer.text if isinstance(answer, SaslError) else len(answer) for answer in answers]


def _at_once(answer: Awaitable[bytes]) -> bytes:
    """Run a coroutine that waits for nothing."""
    try:
        next(answer.__await__())
    except StopIteration as ended:
        made: bytes = ended.value
        return made
    raise AssertionError("it waits")


def _is_proved(mechanism: Mechanism, data: bytes, messages: list[bytes]) -> bool:
    match mechanism:
        case Mechanism.PLAIN:
            user, password = parse_plain(messages[0])
            return user in USERS and password == PASSWORD
        case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
            return any(data[1:].startswith(sample[1:]) for sample in SAMPLES)
        case Mechanism.OAUTHBEARER:
            return SIGNED.encode() in messages[0]


def _client(mechanism: Mechanism, user: str) -> SaslClientExchange:
    match mechanism:
        case Mechanism.PLAIN:
            return PlainClient(user, PASSWORD)
        case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
            return ScramClient(ScramMechanism(mechanism.value), user, PASSWORD, "abc", run_here)
        case Mechanism.OAUTHBEARER:
            return OAuthBearerClient(TOKEN)


def _samples() -> list[bytes]:
    made = []
    for number, mechanism in enumerate(MECHANISMS):
        for user in USERS:
            server = _server(mechanism, has_users=True)
            messages = asyncio.run(authenticate(_client(mechanism, user), server))
            made.append(bytes([number]) + SEPARATOR.join(messages[::2]))
    return [*dict.fromkeys(made)]


def _hostile() -> list[bytes]:
    """Return inputs that are meant to cost much."""
    starts = (b"\0user\0", b"n,,n=", b"n,,n=user,r=a", b"n,,\x01auth=")
    longest = [
        bytes([number]) + start + filler * 40_000
        for number, start in enumerate(starts)
        for filler in (b",", b"\x01", b"=2C")
    ]
    nested = token_parts.encode(b"[" * 9_000)
    bearer = f"n,,\x01auth=Bearer {nested}.{nested}.AAAA\x01\x01".encode()
    many = (
        b"n,,\x01" + b"".join(b"%s=1\x01" % (b"x" * number) for number in range(1, 200)) + b"\x01"
    )
    return [
        *longest,
        b"\x03" + bearer,
        b"\x03" + many,
        b"\x01" + SEPARATOR * 1_000,
    ]


KEY: Final = ec.derive_private_key(2026, ec.SECP256R1())
KEYS: Final = (VerificationKey("fuzz", ("ES256",), KEY.public_key()),)
SIGNATURE: Final = (
    "WkxNrrNcdd_NNyfjgThufnjB-bvfG76lH9VdT-9psJQ-VgtY4saSlH8YaeWJ25uv7vRaLmYoKTcQJXNZ5FmfdQ"
)
"""A signature by KEY, which is different each time: a block of inputs depends on its name only."""
TOKEN: Final = token_parts.token(
    alg="ES256", kid="fuzz", sign=lambda _: base64.urlsafe_b64decode(f"{SIGNATURE}==")
)
SIGNED: Final = TOKEN.rpartition(".")[0]
SAMPLES: Final = tuple(_samples())

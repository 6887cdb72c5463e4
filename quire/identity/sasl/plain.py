"""PLAIN, where the client sends its password. Both sides. Pure.

Leaves the refusal of connections without TLS to the listeners, what stands for an unknown user to
`decoys`, and the thread in which passwords are checked to the caller.

Format: `[<authorization identity>] NUL <user> NUL <password>` in UTF-8.

Invariants: a password is checked against what is stored for SCRAM, as nothing else is stored. A
check does the same work for each user, with decoys for the credentials that a user does not have,
and as many iterations as the users with most have. It accepts a password that fits one of the
user's own credentials.

Source: RFC 4616; KIP-43.
"""

import hmac
from typing import Final

from quire.identity.errors import SaslError
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import (
    ITERATIONS_MAX,
    Decoys,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from quire.identity.sasl.mechanism import (
    ENDED,
    REFUSED,
    Exchange,
    Mechanism,
    RunSlow,
    Step,
    check_names,
    check_size,
    decode_text,
    malformed,
)
from quire.identity.sasl.scram import FindCredential

MESSAGE_BYTES_MAX: Final = 4_096
_FIELDS: Final = 3


class PlainServer(Exchange):
    """One exchange."""

    def __init__(self, find: FindCredential, decoys: Decoys, run_slow: RunSlow) -> None:
        self._find = find
        self._decoys = decoys
        self._run_slow = run_slow
        self._user = ""

    @property
    def principal(self) -> Principal:
        """See `SaslExchange`."""
        assert self.is_complete
        return Principal(self._user)

    async def respond(self, message: bytes) -> bytes:
        """See `SaslExchange`."""
        step = self._take_step()
        if step is not Step.FIRST:
            raise SaslError(ENDED)
        user, password = parse_plain(message)
        pairs = [self._found(user, mechanism) for mechanism in ScramMechanism]
        if not any(is_own for _, is_own in pairs):
            why = f"{user!r} has no password"
        else:
            why = f"the password of {user!r} is wrong"

        def is_right() -> bool:
            fits = [is_own & _fits(credential, password) for credential, is_own in pairs]
            return any(fits)

        if not await self._run_slow(is_right):
            raise SaslError(REFUSED, why)
        self._user = user
        self._step = Step.COMPLETE
        return b""

    def _found(self, user: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """Return the user's credential or its decoy, and whether it is the user's own."""
        (other,) = (kind for kind in ScramMechanism if kind is not mechanism)
        like = self._find(user, other)
        decoy = self._decoys.credential(user, mechanism, like)  # takes its time for every name
        credential = self._find(user, mechanism)
        if credential is None or credential.mechanism is not mechanism:
            return decoy, False
        return credential, True


class PlainClient(Exchange):
    """One exchange. Raises SaslError if the user or the password cannot
    be sent.
    """

    def __init__(self, user: str, password: str) -> None:
        check_names(user, "")
        self._message = f"\0{user}\0{password}".encode()
        parse_plain(self._message)

    def begin(self) -> bytes:
        """See `SaslClientExchange`."""
        return self._message

    async def respond(self, message: bytes) -> bytes | None:
        """See `SaslClientExchange`."""
        step = self._take_step()
        if step is not Step.FIRST:
            raise SaslError(ENDED)
        if message:
            raise malformed(Mechanism.PLAIN, "the server's answer is not empty")
        self._step = Step.COMPLETE
        return None


def parse_plain(message: bytes) -> tuple[str, str]:
    """Return the user and the password. Raises SaslError."""
    check_size(Mechanism.PLAIN, message, MESSAGE_BYTES_MAX)
    parts = decode_text(Mechanism.PLAIN, message).split("\0")
    if len(parts) != _FIELDS:
        raise malformed(Mechanism.PLAIN, f"it has {len(parts)} fields instead of {_FIELDS}")
    authorization, user, password = parts
    if not password:
        raise malformed(Mechanism.PLAIN, "the password is empty")
    check_names(user, authorization)
    return user, password


def _fits(credential: ScramCredential, password: str) -> bool:
    mechanism, salt, iterations = credential.mechanism, credential.salt, credential.iterations
    salted = salted_password(mechanism, password, salt, iterations)
    if iterations < ITERATIONS_MAX:
        salted_password(mechanism, password, salt, ITERATIONS_MAX - iterations)  # only takes time
    made = credential_of(mechanism, salted, salt, iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)

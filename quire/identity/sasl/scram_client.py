"""Client's side of SCRAM-SHA-256 and SCRAM-SHA-512. Pure.

Leaves the form of the messages to `scram_messages`.

Invariants: the password does not leave this process. A server is accepted only if it has the
credential of the user. A server that asks for fewer or more iterations than Kafka's limits is
refused before the password is used: few would make guessing cheap, and many would cost the client
time.

Source: RFC 5802, sections 3 and 5; RFC 7677.
"""

import base64
import hashlib
import hmac
from enum import Enum, auto
from typing import Final

from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import ScramMechanism, client_key, salted_password, server_key
from quire.identity.sasl.mechanism import ENDED, RunSlow, malformed
from quire.identity.sasl.scram_messages import (
    SCRAM,
    ServerFirst,
    encode_name,
    parse_server_final,
    parse_server_first,
)
from quire.identity.sasl.user_names import check_names

NO_BINDING: Final = "n,,"


class _Step(Enum):
    BEGIN = auto()
    FIRST = auto()
    FINAL = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramClient:
    """One exchange; see `SaslClientExchange`. `nonce` is the client's part, and never used again.

    Raises SaslError if the name of the user cannot be used.
    """

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: str, run_slow: RunSlow
    ) -> None:
        check_names(user, "")
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._run_slow = run_slow
        self._bare = f"n={encode_name(user)},r={nonce}"
        self._step = _Step.BEGIN
        self._signature = b""

    @property
    def is_complete(self) -> bool:
        """See `SaslClientExchange`."""
        return self._step is _Step.COMPLETE

    def begin(self) -> bytes:
        """See `SaslClientExchange`."""
        assert self._step is _Step.BEGIN
        self._step = _Step.FIRST
        return (NO_BINDING + self._bare).encode()

    async def respond(self, message: bytes) -> bytes | None:
        """See `SaslClientExchange`."""
        step, self._step = self._step, _Step.FAILED
        match step:
            case _Step.FIRST:
                answer = await self._prove(message, parse_server_first(message))
                self._step = _Step.FINAL
                return answer
            case _Step.FINAL:
                if not hmac.compare_digest(parse_server_final(message), self._signature):
                    raise SaslError(
                        "the server does not know this user's password: check its address"
                    )
                self._step = _Step.COMPLETE
                return None
            case _Step.BEGIN | _Step.COMPLETE | _Step.FAILED:
                raise SaslError(ENDED)

    async def _prove(self, message: bytes, first: ServerFirst) -> bytes:
        if not first.nonce.startswith(self._nonce) or len(first.nonce) <= len(self._nonce):
            raise malformed(SCRAM, "the nonce does not begin with this client's part and go on")
        mechanism, name = self._mechanism, self._mechanism.hash_name

        def salt_password() -> bytes:
            return salted_password(mechanism, self._password, first.salt, first.iterations)

        salted = await self._run_slow(salt_password)
        binding = base64.b64encode(NO_BINDING.encode()).decode()
        without_proof = f"c={binding},r={first.nonce}"
        signed = f"{self._bare},{message.decode()},{without_proof}".encode()
        key = client_key(mechanism, salted)
        mask = hmac.digest(hashlib.new(name, key).digest(), signed, name)
        proof = bytes(a ^ b for a, b in zip(key, mask, strict=True))
        self._signature = hmac.digest(server_key(mechanism, salted), signed, name)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

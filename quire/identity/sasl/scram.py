"""Server's side of SCRAM-SHA-256 and SCRAM-SHA-512. Pure.

Leaves the form of the messages to `scram_messages`, the client's side to `scram_client`, and what
stands for an unknown user to `decoys`.

Invariants:

- An unknown user takes the same steps as one with a wrong password, with the same work and messages
  of the same form, and fails in the last step with the same text.
- The nonce that the client repeats is compared as a whole: a message of another exchange, or one
  with a nonce of the client's choice, is refused.
- What the client says of channel binding in its first message, it confirms in its last one.

Source: RFC 5802, section 3; RFC 7677; CVE-2024-56128.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from enum import Enum, auto

from quire.identity.errors import SaslError
from quire.identity.principal import Principal
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism
from quire.identity.sasl.decoys import Decoys
from quire.identity.sasl.mechanism import ENDED, REFUSED
from quire.identity.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    parse_client_final,
    parse_client_first,
)

FindCredential = Callable[[str, ScramMechanism], ScramCredential | None]
"""Returns what is stored of a user's password for a mechanism, from memory."""


class _Step(Enum):
    FIRST = auto()
    FINAL = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramServer:
    """One exchange; see `SaslExchange`. `nonce` is the server's part, and never used again."""

    def __init__(
        self, mechanism: ScramMechanism, find: FindCredential, decoys: Decoys, nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._decoys = decoys
        self._own_nonce = nonce
        self._step = _Step.FIRST
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        """What is stored of the user's password; None for an unknown user."""
        self._checked: ScramCredential | None = None
        """The same, or a decoy."""
        self._server_first = ""

    @property
    def is_complete(self) -> bool:
        """See `SaslExchange`."""
        return self._step is _Step.COMPLETE

    @property
    def principal(self) -> Principal:
        """See `SaslExchange`."""
        assert self.is_complete
        assert self._first is not None
        return Principal(self._first.user)

    @property
    def expires_at_s(self) -> float | None:
        """See `SaslExchange`."""
        return None

    async def respond(self, message: bytes) -> bytes:
        """See `SaslExchange`."""
        step, self._step = self._step, _Step.FAILED
        match step:
            case _Step.FIRST:
                answer = self._begin(parse_client_first(message))
                self._step = _Step.FINAL
                return answer
            case _Step.FINAL:
                answer = self._finish(parse_client_final(message))
                self._step = _Step.COMPLETE
                return answer
            case _Step.COMPLETE | _Step.FAILED:
                raise SaslError(ENDED)

    def _begin(self, first: ClientFirst) -> bytes:
        self._first = first
        found = self._find(first.user, self._mechanism)
        if found is not None and found.mechanism is self._mechanism:
            self._credential = found
        # Made for every name, so that the time of the answer does not show which names are users.
        (other,) = (each for each in ScramMechanism if each is not self._mechanism)
        like = self._find(first.user, other)
        decoy = self._decoys.credential(first.user, self._mechanism, like)
        self._checked = shown = self._credential or decoy
        salt = base64.b64encode(shown.salt).decode()
        self._server_first = f"r={first.nonce}{self._own_nonce},s={salt},i={shown.iterations}"
        return self._server_first.encode()

    def _finish(self, final: ClientFinal) -> bytes:
        first = self._first
        assert first is not None
        nonce = first.nonce + self._own_nonce
        if not hmac.compare_digest(final.nonce.encode(), nonce.encode()):
            raise SaslError(REFUSED, f"the nonce of {first.user!r} is not that of this exchange")
        if not hmac.compare_digest(final.binding, first.binding):
            raise SaslError(REFUSED, f"{first.user!r} does not confirm what it said of binding")
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        checked = self._checked
        assert checked is not None, "shown by the first answer"
        is_right = proves(checked, signed, final.proof)
        if self._credential is None:
            raise SaslError(REFUSED, f"{first.user!r} has no password for {self._mechanism}")
        if not is_right:
            raise SaslError(REFUSED, f"the password of {first.user!r} is wrong")
        signature = hmac.digest(checked.server_key, signed, self._mechanism.hash_name)
        return b"v=" + base64.b64encode(signature)


def proves(credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
    """Return whether a proof was made with the password of a credential."""
    name = credential.mechanism.hash_name
    signature = hmac.digest(credential.stored_key, signed, name)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)

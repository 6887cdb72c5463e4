"""Mechanisms of SASL by name, the interface of one exchange, and names of users in messages.

Source: RFC 4422, section 3; KIP-43, KIP-368; RFC 5802, section 5.1; RFC 4422, section 3.4.1.
"""

import base64
import unicodedata
from collections.abc import Awaitable, Callable
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from quire.identity.errors import SaslError
from quire.identity.principal import Principal

if TYPE_CHECKING:
    from random import Random

REFUSED: Final = "authentication failed: check the user and the password or token of this client"
"""The one text for wrong passwords, wrong proofs and unknown users."""
ENDED: Final = "this exchange of SASL has ended: begin another one"

Answer = TypeVar("Answer")


class Mechanism(StrEnum):
    """Mechanism that a server can offer."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class RunSlow(Protocol):
    """Runs a function that takes milliseconds of processor time outside of the event loop. The
    caller bounds how many run at once.
    """

    def __call__(self, slow: Callable[[], Answer], /) -> Awaitable[Answer]:
        """Run a function that touches nothing but its own values, and return its answer."""


async def run_at_once(slow: Callable[[], Answer]) -> Answer:
    """Run a function in the event loop: see `RunSlow`. For clients, which rarely log in."""
    return slow()


class Step(Enum):
    """Step of an exchange. Each mechanism uses some of them."""

    BEGIN = auto()
    FIRST = auto()
    FINAL = auto()
    REFUSED = auto()
    """The other side knows that the token is refused, and has one message left."""
    COMPLETE = auto()
    FAILED = auto()


class Exchange:
    """Steps of one authentication, on either side. An exchange that failed stays failed."""

    _step = Step.FIRST
    expires_at_s: float | None = None
    """See `SaslExchange`."""

    @property
    def is_complete(self) -> bool:
        """Whether the client proved who it is, and the server itself if the mechanism says so."""
        return self._step is Step.COMPLETE

    def _take_step(self) -> Step:
        """Return the step of a message. The exchange has failed unless another step is set then."""
        step, self._step = self._step, Step.FAILED
        return step


class SaslExchange(Protocol):
    """One authentication, on the side of the server.

    A client sends the first message. An exchange that failed stays failed. A server's exchange has
    a principal only once it is complete.
    """

    @property
    def is_complete(self) -> bool:
        """See `Exchange`."""

    @property
    def principal(self) -> Principal:
        """Who the client is, once the exchange is complete."""

    @property
    def expires_at_s(self) -> float | None:
        """When the proof ends, in seconds of Unix time, once complete. None: it has no end."""

    async def respond(self, message: bytes) -> bytes:
        """Take the client's next message and return the answer. Raises SaslError."""


class SaslClientExchange(Protocol):
    """One authentication, on the side of the client."""

    @property
    def is_complete(self) -> bool:
        """See `Exchange`."""

    def begin(self) -> bytes:
        """Return the first message."""

    async def respond(self, message: bytes) -> bytes | None:
        """Take the server's next message and return the answer; None: there is none, as the
        exchange is complete. Raises SaslError.
        """


def check_size(mechanism: str, message: bytes, bytes_max: int) -> None:
    """Refuse a message that is too long. Raises SaslError."""
    if len(message) > bytes_max:
        raise SaslError(
            f"a message of {mechanism} has at most {bytes_max} B, not {len(message)}: shorten the "
            "name, the password or the token"
        )


def decode_text(mechanism: str, message: bytes) -> str:
    """Decode a message. Raises SaslError."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise malformed(mechanism, "it is not UTF-8 text") from None


def malformed(mechanism: str, what: str) -> SaslError:
    """Return the error for a message of a wrong form."""
    return SaslError(
        f"a message of {mechanism} cannot be used: {what}; check the SASL library of the other side"
    )


NONCE_BYTES: Final = 18


def new_nonce(rng: "Random") -> str:
    """Return one side's part of a nonce. The rng is a `SystemRandom`, except in tests.

    A nonce has printable characters of ASCII without the comma.
    """
    return base64.b64encode(rng.randbytes(NONCE_BYTES)).decode()


NAME_CHARACTERS_MAX: Final = 255
_REFUSED_CATEGORIES: Final = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, halves of characters, and ends of lines."""


def name_problem(name: str) -> str:
    """Return why a name cannot be used; empty if it can.

    Whether a name can be used depends on its characters alone, and a user of `metadata.security`
    has no other name. A name that is accepted fits a line of a log. An authorization identity gives
    no rights: it is empty or the user.
    """
    if not name:
        return "the name of the user is empty"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the name of the user has more than {NAME_CHARACTERS_MAX} characters"
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in name):
        return "the name of the user has control characters or ends of lines"
    return ""


def check_names(user: str, authorization: str) -> None:
    """Refuse a name that cannot be used, and an authorization identity that is another user.
    Raises SaslError.
    """
    problem = name_problem(user)
    if problem:
        raise SaslError(f"authentication failed: {problem}; use another name")
    if authorization not in ("", user):
        raise SaslError(
            "authentication failed: the authorization identity is not the user; leave it empty",
            f"the user {user!r} asks for a connection as another user",
        )

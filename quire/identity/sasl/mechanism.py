"""Mechanisms of SASL by name, and the interface of one exchange. Pure.

Leaves each mechanism to the module of its name, which of them a server offers to `authenticator`,
and the frames around the messages to the connections.

Invariants: a client sends the first message. An exchange that failed stays failed. A server's
exchange has a principal only once it is complete.

Source: RFC 4422, section 3; KIP-43, KIP-368.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from quire.identity.errors import SaslError
from quire.identity.principal import Principal

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


class SaslExchange(Protocol):
    """One authentication, on the side of the server."""

    @property
    def is_complete(self) -> bool:
        """Whether the client proved who it is."""

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
        """Whether the server accepted the client, and proved itself if the mechanism says so."""

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

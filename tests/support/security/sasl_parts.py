"""Users, decoys and runs of slow functions for tests of SASL.

Leaves the exchanges to `quire.identity.sasl`.
"""

from collections.abc import Callable
from typing import Final

from quire.identity.errors import SaslError
from quire.identity.sasl.credentials import (
    SALT_BYTES,
    CredentialForm,
    CredentialForms,
    Decoys,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from quire.identity.sasl.mechanism import Answer, SaslClientExchange, SaslExchange

SALT: Final = b"0123456789abcdef"
ITERATIONS: Final = 4_096
DECOYS: Final = Decoys(
    b"a secret of the cluster",
    CredentialForms([CredentialForm(SALT_BYTES, is_text=False, iterations=ITERATIONS)]),
)
PASSWORD: Final = "pencil"
USERS: Final = ("user", "al,ice=", "müller")
"""Each has PASSWORD, for both mechanisms."""
ROUNDS_MAX: Final = 5


def credential(mechanism: ScramMechanism, password: str = PASSWORD) -> ScramCredential:
    """Return what is stored of a password."""
    salted = salted_password(mechanism, password, SALT, ITERATIONS)
    return credential_of(mechanism, salted, SALT, ITERATIONS)


CREDENTIALS: Final = {mechanism: credential(mechanism) for mechanism in ScramMechanism}


def find(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    """Return the credential of one of USERS."""
    return CREDENTIALS[mechanism] if user in USERS else None


async def run_here(slow: Callable[[], Answer]) -> Answer:
    """Run a slow function at once."""
    return slow()


async def authenticate(client: SaslClientExchange, server: SaslExchange) -> list[bytes]:
    """Exchange messages until both sides are complete; return them. Raises SaslError."""
    message = client.begin()
    messages = [message]
    for _ in range(ROUNDS_MAX):
        challenge = await server.respond(message)
        messages.append(challenge)
        answer = await client.respond(challenge)
        if answer is None:
            assert client.is_complete
            assert server.is_complete
            return messages
        message = answer
        messages.append(message)
    raise AssertionError("the exchange does not end")


async def failure(server: SaslExchange, *messages: bytes) -> SaslError:
    """Return the error with which a server refuses the last of these messages."""
    for message in messages[:-1]:
        await server.respond(message)
    try:
        answer = await server.respond(messages[-1])
    except SaslError as error:
        assert not server.is_complete
        return error
    raise AssertionError(f"the server answers {answer!r}")

"""Login of this client at one bookie, after the hello.

Leaves the messages of SCRAM to `quire.identity.sasl`, and the connection to
`ledger_client.bookies.connection`.

Invariants: the password does not leave this process. A bookie is used only once it has proved that
it knows the user's password. A bookie that takes no logins is used without one.

Source: protocol rule 12.6; RFC 5802.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from bookie.wire.messages import (
    LOGIN_DUE,
    BeginLogin,
    ContinueLogin,
    HelloReply,
    LoginReply,
    Status,
)
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from metadata.ids import BookieId
from quire.identity.errors import SaslError, SecurityError
from quire.identity.sasl.mechanism import Mechanism, run_at_once
from quire.identity.sasl_access import SaslAccess

MESSAGES_MAX: Final = 8
"""Maximum number of messages of one login; SCRAM has two."""

NO_PLAIN: Final = (
    "bookies take logins by SCRAM alone, which does not send the password: write"
    ' mechanism = "SCRAM-SHA-512" below [sasl] in the client\'s file'
)

Ask = Callable[[BeginLogin | ContinueLogin], Awaitable[LoginReply]]
"""Sends a message of a login and returns the answer. Raises BookieCallError."""


async def log_in(bookie_id: BookieId, reply: HelloReply, access: SaslAccess, ask: Ask) -> str:
    """Log in if the bookie takes logins; return this client's principal, as the bookie says it.
    Raises BookieCallError.
    """
    if not reply.features & LOGIN_DUE:
        return reply.principal
    try:
        return await _exchange(access, ask)
    except SecurityError as error:
        raise BookieCallError(bookie_id, str(error), failure=CallFailure.REFUSED) from error
    except BookieCallError as error:
        if error.status is None:
            raise
        why = f"it refuses the login of the user {access.user!r}: {error.reason}"
        status = Status.UNAUTHORIZED
        raise BookieCallError(bookie_id, why, failure=CallFailure.REFUSED, status=status) from error


async def _exchange(access: SaslAccess, ask: Ask) -> str:
    if access.mechanism is Mechanism.PLAIN:
        raise SaslError(NO_PLAIN)
    exchange = access.begin(run_at_once)
    reply = await ask(BeginLogin(access.mechanism.value, exchange.begin()))
    for _ in range(MESSAGES_MAX - 1):
        message = await exchange.respond(reply.sasl_message)
        if reply.complete != (message is None):
            raise SaslError("the bookie ends the login at another message than SCRAM does")
        if message is None:
            return reply.principal
        reply = await ask(ContinueLogin(message))
    raise SaslError(f"the login does not end after {MESSAGES_MAX} messages")

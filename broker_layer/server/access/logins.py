"""Logins of clients by SASL: what all connections share, and the login of one connection.

Leaves the mechanisms and the end of sessions to `quire.identity.sasl`, users to
`metadata.security`, and frames and limits of connections to `server.connections`.

Invariants: a client that has not logged in can send nothing but ApiVersions, SaslHandshake and
SaslAuthenticate, one at a time, in small frames, and for LOGIN_S_MAX at most; at most LOGINS_MAX
clients are at it. A refusal is answered after the requests before it, a wrong proof also after a
pause, and ends the connection. A session ends when its proof does.

Source: KIP-43, KIP-152, KIP-368, KIP-84.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_request,
    encode_response,
)
from broker_layer.kafka.versions import HANDSHAKE_VERSION_MIN, ApiKey
from broker_layer.server.counters import BrokerCounters
from broker_layer.server.exchange import Exchange
from broker_layer.server.request_tasks import RequestTasks
from quire.identity.errors import SaslError, SaslMechanismError
from quire.identity.principal import Principal
from quire.identity.sasl.authenticator import SaslAuthenticator
from quire.identity.sasl.sessions import (
    LOGIN_S_MAX,
    REFUSAL_DELAY_S,
    SaslSession,
    SaslSessions,
    SaslStep,
)
from quire.server.audit_log import AuditLog

FRAME_BYTES_MAX: Final = 512 * 1024
"""Largest request of a client that has not logged in; Kafka's `sasl.server.max.receive.size`."""
LOGINS_MAX: Final = 1_000
"""Maximum number of clients of a listener that are about to log in."""
SESSION_MS_MAX: Final = 2**62

EVENT: Final = "login"
_NO_HANDSHAKE: Final = "SaslHandshake must come first"
_OLD_HANDSHAKE: Final = "SaslHandshake has version 0: use a client of Kafka 1.0 or later"
_UNKNOWN: Final = "unknown"
NO_MECHANISM: Final = "none"
"""What metrics show as the mechanism of a login that named none that is enabled."""


class LoginConnection(Protocol):
    """The connection of a login."""

    client_host: str
    principal: Principal

    @property
    def unanswered_count(self) -> int:
        """Number of requests whose answers were not sent."""

    def drop(self, event: str, why: str) -> None:
        """Disconnect, with a line in the log."""

    def close(self) -> None:
        """Disconnect after everything written was sent."""

    def logged_in(self) -> None:
        """Take frames of the full size from now on."""


@dataclass(frozen=True, slots=True)
class LoginParts:
    """What logins use; it is the same for all listeners."""

    tasks: RequestTasks
    counters: BrokerCounters
    audit: AuditLog
    now: Callable[[], float]
    wall_clock_ms: Callable[[], int]
    session_ms_max: int = 0
    """Time after which a client must log in again; 0: it need not."""


class Logins:
    """Logins of all connections of one listener."""

    def __init__(self, authenticator: SaslAuthenticator, parts: LoginParts) -> None:
        self.sessions = SaslSessions(authenticator, LOGINS_MAX)
        self._parts = parts

    def begin(self, connection: LoginConnection) -> "Login | None":
        """Begin the login of a new connection; None if too many are under way."""
        session = self.sessions.begin(
            lambda why: connection.drop(EVENT, why), connection.client_host
        )
        if session is None:
            return None
        enabled = self.sessions.authenticator.enabled
        return Login(session, connection, self._parts, [str(each) for each in enabled])


class Login:
    """Login of one connection, and the logins that follow on it."""

    def __init__(
        self,
        session: SaslSession,
        connection: LoginConnection,
        parts: LoginParts,
        mechanisms: list[str],
    ) -> None:
        """`mechanisms` has the names of those that are enabled."""
        self._session = session
        self._connection = connection
        self._parts = parts
        self._mechanisms = mechanisms
        self._began_s = self._parts.now()
        self._mechanism = NO_MECHANISM
        self._is_busy = False
        """Whether a request of the login has not been answered."""
        self._refused_s: float | None = None
        """When the client was refused; None: it was not."""
        self._ends_s: float | None = None
        """When the session ends; None: it has no end."""

    def overdue(self, now_s: float) -> str | None:
        """Return what the client should have done, or None."""
        if self._refused_s is not None and now_s - self._refused_s > LOGIN_S_MAX:
            return f"the login was refused {LOGIN_S_MAX:g} s ago, and the answer still waits"
        if self._session.is_done or now_s - self._began_s <= LOGIN_S_MAX:
            return None
        return f"the client did not log in within {LOGIN_S_MAX:g} s"

    def takes(self, exchange: Exchange) -> bool:
        """Serve a request of the login, or refuse one that may not be served; return whether it was
        one of these.
        """
        api_key, is_done = exchange.api_key, self._session.is_done
        is_early = not is_done and self._connection.unanswered_count > 1
        if self._is_busy or is_early:
            self._drop("a request came before the one before it, of the login, was answered")
        elif api_key == ApiKey.SASL_HANDSHAKE:
            self._shake_hands(exchange)
        elif api_key == ApiKey.SASL_AUTHENTICATE:
            self._is_busy = True
            self._parts.tasks.run(exchange, self._authenticate(exchange))
        elif api_key == ApiKey.API_VERSIONS:
            return False
        elif not is_done:
            self._drop(f"API {int(api_key)} came before the login")
        elif self._ends_s is not None and self._parts.now() >= self._ends_s:
            self._drop("the session has ended, and the client did not log in again")
        else:
            return False
        return True

    def forget(self) -> None:
        """Note that the connection is closed."""
        self._session.forget()

    # -- one exchange

    def _shake_hands(self, exchange: Exchange) -> None:
        request = decode_request(exchange.api_key, exchange.api_version, exchange.body)
        assert isinstance(request, SaslHandshakeRequest), "the codec selects by API"
        code = self._begin(request.mechanism, exchange.api_version)
        answer = SaslHandshakeResponse(error_code=code, mechanisms=self._mechanisms)
        body = encode_response(answer, exchange.api_version)
        if code is ErrorCode.NONE:
            exchange.answer([body])
        else:
            self._end(exchange, body)

    def _begin(self, mechanism: str, version: int) -> ErrorCode:
        if version < HANDSHAKE_VERSION_MIN:
            self._note_refusal(_OLD_HANDSHAKE)
            return ErrorCode.UNSUPPORTED_VERSION
        try:
            self._session.begin(mechanism)
        except SaslMechanismError as error:
            self._mechanism = NO_MECHANISM
            self._note_refusal(str(error))
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism = mechanism
        return ErrorCode.NONE

    async def _authenticate(self, exchange: Exchange) -> None:
        request = decode_request(exchange.api_key, exchange.api_version, exchange.body)
        assert isinstance(request, SaslAuthenticateRequest), "the codec selects by API"
        if not self._session.has_begun:
            self._note_refusal(_NO_HANDSHAKE)
            await self._refuse(exchange, ErrorCode.ILLEGAL_SASL_STATE, _NO_HANDSHAKE)
            return
        try:
            step = await self._session.respond(bytes(request.auth_bytes))
        except SaslError as error:
            self._note_refusal(error.why)
            await self._refuse(exchange, ErrorCode.SASL_AUTHENTICATION_FAILED, error.text)
            return
        if self._session.is_gone:
            return
        lifetime_ms = self._take_over(step) if step.is_complete else 0
        self._is_busy = False
        answer = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            auth_bytes=step.challenge,
            session_lifetime_ms=lifetime_ms,
        )
        exchange.answer([encode_response(answer, exchange.api_version)])

    def _take_over(self, step: SaslStep) -> int:
        """Take over what an exchange proved; return how long it holds, in ms, 0 for ever."""
        limits_ms = [self._parts.session_ms_max] if self._parts.session_ms_max else []
        if step.expires_at_s is not None:
            left_ms = 1_000 * step.expires_at_s - self._parts.wall_clock_ms()
            limits_ms.append(max(1, min(SESSION_MS_MAX, int(left_ms))))
        lifetime_ms = min(limits_ms, default=0)
        self._ends_s = self._parts.now() + lifetime_ms / 1_000 if lifetime_ms else None
        self._connection.principal = self._session.principal
        self._connection.logged_in()
        return lifetime_ms

    async def _refuse(self, exchange: Exchange, code: ErrorCode, text: str) -> None:
        await asyncio.sleep(REFUSAL_DELAY_S)
        answer = SaslAuthenticateResponse(
            error_code=code, error_message=text, auth_bytes=b"", session_lifetime_ms=0
        )
        self._end(exchange, encode_response(answer, exchange.api_version))

    def _end(self, exchange: Exchange, body: bytes | bytearray) -> None:
        """Answer a refusal once the requests before it are answered; then close the connection."""
        self._is_busy = True
        self._refused_s = self._parts.now()

        def answer() -> None:
            exchange.answer([body])
            asyncio.get_running_loop().call_soon(self._connection.close)

        exchange.requester.when_first(exchange, answer)

    def _note_refusal(self, why: str) -> None:
        who = self._connection.principal.text if self._session.is_done else _UNKNOWN
        peer = self._connection.client_host
        self._parts.counters.note_refused_login(self._mechanism)
        self._parts.audit.refused("login", who=who, peer=peer, reason=why)

    def _drop(self, why: str) -> None:
        self._connection.drop(EVENT, why)

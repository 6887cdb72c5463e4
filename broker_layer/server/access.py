"""How the listeners of a broker take clients: with certificates, with logins by SASL, or freely.

Leaves handshakes to `quire.server.tls_listening`, checking the options to `login_options`, the
mechanisms and the end of sessions to `quire.identity.sasl`, and users to `metadata.security`.

Source: KIP-43, KIP-152, KIP-368, KIP-84.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

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
from broker_layer.security.login_options import HTTPS, LoginOptions, SecurityProtocol
from broker_layer.server.exchange import Exchange, Requester, RequestTasks
from broker_layer.server.server_limits import BrokerCounters
from metadata.security.user_decoys import read_decoys
from metadata.security.user_store import UserTable
from metadata.store.interface import MetadataStore
from quire.addresses import is_loopback
from quire.identity.errors import SaslError, SaslMechanismError
from quire.identity.principal import ANONYMOUS, MappingRule, Principal, principal_of
from quire.identity.sasl.jwks import (
    FILE_REFRESH_S,
    URL_REFRESH_S,
    JwksCache,
    fetch_jwks,
    read_jwks_file,
)
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.sessions import (
    LOGIN_S_MAX,
    REFUSAL_DELAY_S,
    SaslAuthenticator,
    SaslParts,
    SaslSession,
    SaslSessions,
    SaslStep,
)
from quire.identity.sasl.tokens import TokenVerifier
from quire.identity.tls import ContextSource, RenewedContext, TlsFiles
from quire.server.served_tls import ServedTls
from quire.server.server_log import AuditLog
from quire.server.slow_work import SlowWork, SlowWorkFullError

if TYPE_CHECKING:
    from quire.identity.sasl.credentials import Decoys
    from quire.server.tls_listening import TlsListening

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


@dataclass(frozen=True, slots=True)
class ListenerAccess:
    """How one listener takes connections."""

    name: str
    tls: "TlsListening | None" = None
    """None if connections begin without a handshake."""
    rules: Sequence[MappingRule] = ()
    """Rules for the principals of clients with certificates."""
    logins: "Logins | None" = None
    """Logins of clients; None if they are served without."""

    def principal_of(self, transport: asyncio.BaseTransport) -> Principal:
        """Return who the client of a new connection is, by its certificate. One that logs in is
        anonymous until then.
        """
        if self.tls is None or self.logins is not None:
            return ANONYMOUS
        return principal_of(transport.get_extra_info("peercert"), self.rules)

    def is_private(self, client_host: str) -> bool:
        """Return whether no other machine can read what a client sends."""
        return self.tls is not None or is_loopback(client_host)


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

    def begin(self, connection: Requester) -> "Login | None":
        """Begin the login of a new connection; None if too many are under way."""
        session = self.sessions.begin(
            lambda why: connection.drop(EVENT, why), connection.client_host
        )
        if session is None:
            return None
        enabled = self.sessions.authenticator.enabled
        return Login(session, connection, self._parts, [str(mechanism) for mechanism in enabled])


class Login:
    """Login of one connection, and the logins that follow on it.

    Invariants: a client that has not logged in can send nothing but ApiVersions, SaslHandshake and
    SaslAuthenticate, one at a time, in small frames, and for LOGIN_S_MAX at most; at most
    LOGINS_MAX clients are at it. A refusal is answered after the requests before it, a wrong proof
    also after a pause, and ends the connection. A session ends when its proof does.
    """

    def __init__(
        self,
        session: SaslSession,
        connection: Requester,
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
        """Send a refusal after the answers to earlier requests; then close the connection."""
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


ResultT = TypeVar("ResultT")


class ServedLogins:
    """Logins of one broker. Call `start` before the first client comes, and `aclose` once."""

    def __init__(
        self, options: LoginOptions, users: UserTable, parts: LoginParts, rng: Random
    ) -> None:
        """`rng` makes nonces and keys: outside of tests it is a `random.SystemRandom`."""
        self._options = options
        self._users = users
        self._parts = parts
        self._rng = rng
        self._slow = SlowWork("login")
        self._closing = ExitStack()
        self._closing.callback(self._slow.close)
        self._jwks: JwksCache | None = None
        self._decoys: Decoys | None = None

    async def start(self, store: MetadataStore) -> None:
        """Read the secret of the decoys. Raises MetadataError."""
        self._decoys = await read_decoys(store, self._rng, self._users.forms)

    async def aclose(self) -> None:
        """Stop threads and reads."""
        if self._jwks is not None:
            await self._jwks.close()
        self._closing.close()

    def of(self, protocol: SecurityProtocol) -> Logins:
        """Return the logins of a listener. Raises SecurityError."""
        assert self._decoys is not None, "started before"
        enabled = self._options.mechanisms(protocol)
        verifier = self._verifier() if Mechanism.OAUTHBEARER in enabled else None
        parts = SaslParts(
            self._users.find,
            self._decoys,
            self._run_slow,
            self._rng,
            None if verifier is None else verifier.verify,
        )
        logins = Logins(SaslAuthenticator(enabled, parts), self._parts)
        self._closing.callback(self._users.on_revocation(logins.sessions.revoke))
        return logins

    def _verifier(self) -> TokenVerifier:
        options = self._options
        if self._jwks is None:
            source = options.sasl_oauth_jwks
            trusting = RenewedContext(TlsFiles(authorities=options.sasl_oauth_ca_file))
            read = _reader_of(source, trusting, self._parts.now)
            refresh_s = URL_REFRESH_S if source.startswith(HTTPS) else FILE_REFRESH_S
            self._jwks = JwksCache(read, self._parts.now, refresh_s)
        now_ms = self._parts.wall_clock_ms
        return TokenVerifier(options.token_rules, self._jwks.find, lambda: now_ms() / 1_000)

    async def _run_slow(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            return await self._slow.run(work)
        except SlowWorkFullError as error:
            raise SaslError("too many clients log in now: try again later") from error


def _reader_of(
    source: str, contexts: ContextSource, now: Callable[[], float]
) -> Callable[[], Awaitable[bytes]]:
    async def fetch() -> bytes:
        return await fetch_jwks(source, [source], contexts(now()))

    async def read() -> bytes:
        return read_jwks_file(source)

    return fetch if source.startswith(HTTPS) else read


def access_of_listeners(
    protocols: Mapping[str, SecurityProtocol],
    options: LoginOptions,
    tls: ServedTls,
    logins: ServedLogins,
) -> dict[str, ListenerAccess]:
    """Return how each listener takes connections. Raises SecurityError."""
    access = dict[str, ListenerAccess]()
    for name, protocol in protocols.items():
        if protocol.uses_logins:
            listening = tls.listening_for_logins() if protocol.uses_tls else None
            access[name] = ListenerAccess(name, listening, (), logins.of(protocol))
        else:
            listening = tls.listening_with_certificates() if protocol.uses_tls else None
            access[name] = ListenerAccess(name, listening, options.principal_rules)
    return access

"""Security of the listeners of one broker, put together from its options.

Leaves checking the options to `login_options`, logins to `logins`, and certificates to
`quire.server.served_tls`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, TypeVar

from broker_layer.security.login_options import HTTPS, LoginOptions
from broker_layer.security.protocols import SecurityProtocol
from broker_layer.server.access.listener_access import ListenerAccess
from broker_layer.server.access.logins import LoginParts, Logins
from metadata.security.user_decoys import read_decoys
from metadata.security.user_store import UserTable
from metadata.store.interface import MetadataStore
from quire.identity.errors import SaslError
from quire.identity.renewed_tls import ContextSource, RenewedContext
from quire.identity.sasl.authenticator import SaslAuthenticator, SaslParts
from quire.identity.sasl.jwks_cache import FILE_REFRESH_S, URL_REFRESH_S, JwksCache
from quire.identity.sasl.jwks_documents import fetch_jwks, read_jwks_file
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.tokens import TokenVerifier
from quire.identity.tls import TlsFiles
from quire.server.served_tls import ServedTls
from quire.server.slow_work import SlowWork, SlowWorkFullError

if TYPE_CHECKING:
    from quire.identity.sasl.decoys import Decoys

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

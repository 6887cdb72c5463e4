"""Mechanisms that a server offers, and the logins of the connections of one address.

Source: KIP-368; RFC 4422, section 3; RFC 4422, section 3.2; KIP-43, KIP-84, KIP-255.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from quire.identity.errors import SaslError, SaslMechanismError
from quire.identity.principal import ANONYMOUS, Principal
from quire.identity.sasl.credentials import Decoys, ScramMechanism
from quire.identity.sasl.mechanism import Mechanism, RunSlow, SaslExchange, new_nonce
from quire.identity.sasl.oauthbearer import OAuthBearerServer, VerifyToken
from quire.identity.sasl.plain import PlainServer
from quire.identity.sasl.scram import FindCredential, ScramServer
from quire.identity.shares import Shares, network_of

LOGIN_S_MAX: Final = 10.0
"""Maximum time of a login."""
REFUSAL_DELAY_S: Final = 0.1
"""Pause before a refusal, so that guessing is slow; Kafka's
`connection.failed.authentication.delay.ms`."""
ADDRESS_SHARE: Final = 4
"""Clients of one address use at most one of so many parts of the unfinished logins, so that they do
not keep others out."""
OTHER_PRINCIPAL: Final = "a client that logs in again must log in as before"
CHANGED: Final = "the password was changed during the login: try again"
NOT_BEGUN: Final = "this exchange of SASL has not begun: name a mechanism first"
EndSession = Callable[[str], None]
"""Ends a connection, for a reason."""


@dataclass(frozen=True, slots=True)
class SaslStep:
    """Answer to a message of a client."""

    challenge: bytes
    is_complete: bool = False
    """Whether the client has proved who it is."""
    expires_at_s: float | None = None
    """When the proof ends, in seconds of Unix time. None: it has no end."""


@dataclass(frozen=True, slots=True)
class SaslParts:
    """What the mechanisms need."""

    find: FindCredential
    decoys: Decoys
    run_slow: RunSlow
    rng: Random
    """A `SystemRandom`, except in tests."""
    verify_token: VerifyToken | None = None
    """Needed by OAUTHBEARER alone."""


class SaslAuthenticator:
    """Begins exchanges. Raises ValueError if no mechanism is enabled, or a part of one is missing.

    `enabled` has the preferred mechanism first.

    A mechanism that is not enabled never begins, even if its parts are there.
    """

    def __init__(self, enabled: Sequence[Mechanism], parts: SaslParts) -> None:
        if not enabled:
            raise ValueError(f"enable a mechanism of SASL: {', '.join(Mechanism)}")
        if Mechanism.OAUTHBEARER in enabled and parts.verify_token is None:
            raise ValueError("OAUTHBEARER needs rules for tokens: add them, or disable it")
        self.enabled = tuple(dict.fromkeys(enabled))
        self._parts = parts

    def begin(self, name: str) -> SaslExchange:
        """Begin an exchange of the mechanism that a client names. Raises SaslMechanismError."""
        if name not in self.enabled:
            raise SaslMechanismError(self.enabled)
        parts, mechanism = self._parts, Mechanism(name)
        match mechanism:
            case Mechanism.PLAIN:
                return PlainServer(parts.find, parts.decoys, parts.run_slow)
            case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
                nonce = new_nonce(parts.rng)
                return ScramServer(ScramMechanism(mechanism.value), parts.find, parts.decoys, nonce)
            case Mechanism.OAUTHBEARER:
                assert parts.verify_token is not None
                return OAuthBearerServer(parts.verify_token)


class SaslSessions:
    """Sessions of all connections of one address.

    At most a given number of connections are about to log in, and of one client's address at most a
    part of that number (ADDRESS_SHARE). A client that logs in again stays who it is, with the same
    mechanism. A session ends soon after the user's password is changed or removed, and a login
    during which that happens is refused. A login whose connection is closed is removed, and proves
    nothing any more.
    """

    def __init__(self, authenticator: SaslAuthenticator, under_way_max: int) -> None:
        """`under_way_max` is the maximum number of connections that are about to log in."""
        self.authenticator = authenticator
        self._places = Shares(under_way_max, max(2, under_way_max // ADDRESS_SHARE))
        """Connections that are about to log in, by the network of the client."""
        self._under_way: dict[SaslSession, None] = {}
        self._done: dict[SaslSession, None] = {}

    @property
    def count(self) -> int:
        """Number of connections that are about to log in, or have logged in."""
        return len(self._under_way) + len(self._done)

    def begin(self, end: EndSession, address: str) -> "SaslSession | None":
        """Begin the session of a new connection from an address; None if too many are about to log
        in, altogether or from there.
        """
        network = network_of(address)
        if not self._places.take(network):
            return None
        session = SaslSession(self, end, network)
        self._under_way[session] = None
        return session

    def revoke(self, user: str, mechanisms: Collection[str]) -> None:
        """End the sessions of a user that logged in with an old password; call it after each
        change.
        """
        for session in (*self._under_way, *self._done):
            session.revoke(user, mechanisms)

    def note_done(self, session: "SaslSession") -> None:
        """Note that a client has logged in."""
        self._end_login(session)
        self._done[session] = None

    def forget(self, session: "SaslSession") -> None:
        """Remove a session whose connection is closed."""
        self._end_login(session)
        self._done.pop(session, None)

    def _end_login(self, session: "SaslSession") -> None:
        if session not in self._under_way:
            return
        del self._under_way[session]
        self._places.give_back(session.network)


class SaslSession:
    """Login of one connection, and the logins that follow on it."""

    def __init__(self, sessions: SaslSessions, end: EndSession, network: str) -> None:
        self._sessions = sessions
        self._end = end
        self.network = network
        """Network of the client."""
        self._exchange: SaslExchange | None = None
        self._mechanism = ""
        """Mechanism of the exchange, or of the last one that was complete."""
        self._revoked: set[str] = set()
        """Users whose password changed since this exchange began."""
        self.principal = ANONYMOUS
        """Who the client is."""
        self.is_done = False
        """Whether the client has logged in."""
        self.is_gone = False
        """Whether the connection is closed."""

    @property
    def has_begun(self) -> bool:
        """Whether an exchange is under way."""
        return self._exchange is not None

    def begin(self, mechanism: str) -> None:
        """Begin an exchange of the mechanism that a client names. Raises SaslMechanismError."""
        if self.is_done and mechanism != self._mechanism:
            raise SaslMechanismError([self._mechanism])
        self._exchange = self._sessions.authenticator.begin(mechanism)
        self._mechanism = mechanism
        self._revoked.clear()

    async def respond(self, message: bytes) -> SaslStep:
        """Take the client's next message and return the answer. Raises SaslError."""
        exchange = self._exchange
        if exchange is None:
            raise SaslError(NOT_BEGUN)
        challenge = await exchange.respond(message)
        if self.is_gone or not exchange.is_complete:
            return SaslStep(challenge)
        self._accept(exchange.principal)
        return SaslStep(challenge, is_complete=True, expires_at_s=exchange.expires_at_s)

    def revoke(self, user: str, mechanisms: Collection[str]) -> None:
        """End the connection if it is that of a user whose password changed."""
        if self._exchange is not None:
            self._revoked.add(user)
        is_own = self.is_done and self.principal.name == user
        if is_own and self._proved_by(mechanisms):
            self._end(f"the password of {user!r} was changed or removed")

    def forget(self) -> None:
        """Note that the connection is closed."""
        self.is_gone = True
        self._sessions.forget(self)

    def _accept(self, principal: Principal) -> None:
        """Take over what an exchange proved. Raises SaslError."""
        if self.is_done and principal != self.principal:
            raise SaslError(OTHER_PRINCIPAL, f"{principal.text} is not {self.principal.text}")
        if principal.name in self._revoked and self._mechanism != Mechanism.OAUTHBEARER:
            raise SaslError(CHANGED, f"the password of {principal.name!r} was changed meanwhile")
        self._exchange = None
        self.principal = principal
        self.is_done = True
        self._sessions.note_done(self)

    def _proved_by(self, mechanisms: Collection[str]) -> bool:
        """Return whether the client proved itself with one of these credentials. PLAIN takes a
        password that fits any of them.
        """
        return self._mechanism in mechanisms or self._mechanism == Mechanism.PLAIN

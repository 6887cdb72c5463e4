"""Logins of a bookie's clients with the passwords of users: what all connections share.

Leaves users to `metadata.security`, sessions to `quire.identity.sasl`, and the messages of one
connection to `bookie.server.greeting`.

Invariants: passwords are not sent, so only mechanisms of SCRAM are taken. While the metadata
service is away the users that were read last hold. A client with the name of those that proved
nothing has no principal.

Source: protocol rules 12.1 and 12.6.
"""

from contextlib import ExitStack
from enum import StrEnum
from random import Random
from typing import Final

from metadata.security.user_decoys import read_decoys
from metadata.security.user_store import UserTable
from metadata.store.interface import MetadataStore
from quire.identity.sasl.mechanism import Mechanism, run_at_once
from quire.identity.sasl.sessions import (
    EndSession,
    SaslAuthenticator,
    SaslParts,
    SaslSession,
    SaslSessions,
)

MECHANISMS: Final = (Mechanism.SCRAM_SHA_512, Mechanism.SCRAM_SHA_256)
UNDER_WAY_MAX: Final = 256
"""Maximum number of clients that are about to log in."""
FRAME_BYTES_MAX: Final = 8 * 1024
"""Largest frame of a client that is about to log in."""

LOGIN_NEEDED: Final = (
    "this bookie needs a login: write mechanism, user and password_file below [sasl] in the"
    " client's file"
)
TOO_MANY: Final = "too many clients are about to log in: try again"


class LoginMode(StrEnum):
    """Whether clients log in with the password of a user."""

    OFF = "off"
    OPTIONAL = "optional"
    """Those that want to; others are served without, while a cluster changes."""
    REQUIRED = "required"


class ClientLogins:
    """Logins of the clients of one bookie, from `start` to `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random, mode: LoginMode) -> None:
        """`rng` makes nonces and keys: outside of tests it is a `random.SystemRandom`."""
        assert mode is not LoginMode.OFF, "a bookie without logins has none of this"
        self._store = store
        self._rng = rng
        self._users = UserTable(store, rng)
        self._closing = ExitStack()
        self._sessions: SaslSessions | None = None
        self.is_required = mode is LoginMode.REQUIRED
        """Whether a client without a login is refused."""

    async def start(self) -> None:
        """Read the users, and keep them up to date. Raises MetadataError."""
        decoys = await read_decoys(self._store, self._rng, self._users.forms)
        # No mechanism of SCRAM has slow work on the side of the server.
        parts = SaslParts(self._users.find, decoys, run_at_once, self._rng)
        sessions = SaslSessions(SaslAuthenticator(MECHANISMS, parts), UNDER_WAY_MAX)
        self._closing.callback(self._users.on_revocation(sessions.revoke))
        await self._users.start()
        self._sessions = sessions

    async def aclose(self) -> None:
        """Stop following the users."""
        self._closing.close()
        await self._users.aclose()

    def begin(self, end: EndSession, address: str) -> SaslSession | None:
        """Begin the session of a connection from an address; None if too many clients are about to
        log in.
        """
        assert self._sessions is not None, "started before"
        return self._sessions.begin(end, address)


def make_logins(store: MetadataStore, rng: Random, mode: LoginMode) -> ClientLogins | None:
    """Return the logins of a bookie; None if its clients do not log in."""
    return None if mode is LoginMode.OFF else ClientLogins(store, rng, mode)

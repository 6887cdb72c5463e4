"""Sessions of people who logged in to a console with its token.

Leaves the cookie to `guard`.

Invariants: a session ends SESSION_S after its login, and when the console stops; at most
SESSIONS_MAX exist, the oldest one ends first. In LOGINS_PERIOD_S at most LOGINS_FAILED_MAX wrong
tokens are compared, of one address at most LOGINS_OF_ADDRESS_MAX, in forms and in headers together:
so a token cannot be guessed, and an address that tries keeps no other out.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from security.shares import Shares

SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1_000
LOGINS_FAILED_MAX: Final = 10_000
LOGINS_OF_ADDRESS_MAX: Final = 30
LOGINS_PERIOD_S: Final = 60.0
TOKEN_BYTES: Final = 32
TOKEN_CHARACTERS_MIN: Final = 16
"""Minimum length of a token that a file names: a shorter one could be guessed."""
_FORM_KEY: Final = b"form:"


@dataclass(frozen=True, slots=True)
class Session:
    """One login."""

    name: str
    """Who logged in, for the audit log."""
    ends_s: float


class TooManyLoginsError(Exception):
    """Too many logins failed within the last minute."""

    def __init__(self, text: str = "too many logins failed: wait a minute, then try again") -> None:
        super().__init__(text)


class Sessions:
    """Sessions of one console."""

    def __init__(self, token: str, now: Callable[[], float]) -> None:
        self._token = token.encode()
        self._now = now
        self._key = secrets.token_bytes(TOKEN_BYTES)
        self._by_id: dict[str, Session] = {}
        self._failed = Shares(LOGINS_FAILED_MAX, LOGINS_OF_ADDRESS_MAX)
        self._since_s = now()

    def is_token(self, token: str, address: str) -> bool:
        """Return whether a client of an address sends the token. Raises TooManyLoginsError."""
        now_s = self._now()
        if now_s - self._since_s >= LOGINS_PERIOD_S:
            self._since_s = now_s
            self._failed = Shares(LOGINS_FAILED_MAX, LOGINS_OF_ADDRESS_MAX)
        if not self._failed.has_share(address):
            raise TooManyLoginsError
        # Bytes of a header that are not UTF-8 are lone surrogates.
        given = token.encode(errors="surrogateescape")
        if self._token and hmac.compare_digest(given, self._token):
            return True
        self._failed.take(address)
        return False

    def log_in(self, token: str, address: str) -> str | None:
        """Return the id of a new session; None if the token is wrong. Raises TooManyLoginsError."""
        if not self.is_token(token, address):
            return None
        now_s = self._now()
        while len(self._by_id) >= SESSIONS_MAX:
            del self._by_id[next(iter(self._by_id))]
        session_id = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_id[session_id] = Session("console token", now_s + SESSION_S)
        return session_id

    def get(self, session_id: str) -> Session | None:
        """Return a session; None if there is none, or it has ended."""
        found = self._by_id.get(session_id)
        if found is not None and found.ends_s <= self._now():
            del self._by_id[session_id]
            return None
        return found

    def log_out(self, session_id: str) -> None:
        """End a session."""
        self._by_id.pop(session_id, None)

    def form_token(self, holder: str) -> str:
        """Return the token of all forms of one session, or of one principal with a certificate."""
        return hmac.new(self._key, _FORM_KEY + holder.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, holder: str, given: str) -> bool:
        """Return whether a form has the token of its holder."""
        return hmac.compare_digest(self.form_token(holder).encode(), given.encode())

"""Sessions of people who logged in to a console with its token.

Leaves the cookie to `guard`, and comparing tokens, in forms and in headers together, to
`quire.server.token_check`.

Invariants: a session ends SESSION_S after its login, and when the console stops; at most
SESSIONS_MAX exist, the oldest one ends first.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quire.server.token_check import TokenCheck

SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1_000
TOKEN_BYTES: Final = 32
_FORM_KEY: Final = b"form:"


@dataclass(frozen=True, slots=True)
class Session:
    """One login."""

    name: str
    """Who logged in, for the audit log."""
    ends_s: float


class Sessions:
    """Sessions of one console."""

    def __init__(self, token: str, now: Callable[[], float]) -> None:
        self._check = TokenCheck(token, now)
        self._now = now
        self._key = secrets.token_bytes(TOKEN_BYTES)
        self._by_id: dict[str, Session] = {}

    def is_token(self, token: str, address: str) -> bool:
        """Return whether a client of an address sends the token. Raises TooManyLoginsError."""
        return self._check.is_token(token, address)

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

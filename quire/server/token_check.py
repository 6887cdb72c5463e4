"""Check of the admin token of an HTTP port, with a limit of wrong ones.

Invariants: in LOGINS_PERIOD_S at most LOGINS_OF_ADDRESS_MAX wrong tokens of one address are
compared, or of one network of IPv6 (`network_of`); what one sends keeps no other out. Many
addresses together may try more: they guess no token of TOKEN_CHARACTERS_MIN characters.
"""

import hmac
from collections import Counter
from collections.abc import Callable
from typing import Final

from quire.identity.errors import SecretError
from quire.identity.secret_files import read_secret
from quire.identity.shares import network_of

LOGINS_OF_ADDRESS_MAX: Final = 30
LOGINS_PERIOD_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
"""Number of addresses with wrong tokens that are remembered; the first one is replaced."""
TOKEN_CHARACTERS_MIN: Final = 16
"""Minimum length of a token that a file names: a shorter one could be guessed."""


class TooManyLoginsError(Exception):
    """Too many logins failed within the last minute."""

    def __init__(self, text: str = "too many logins failed: wait a minute, then try again") -> None:
        super().__init__(text)


class TokenCheck:
    """The token of one port, and the wrong ones of this period."""

    def __init__(self, token: str, now: Callable[[], float]) -> None:
        """`now` returns seconds; with an empty token every token is wrong."""
        self._token = token.encode()
        self._now = now
        self._failed = Counter[str]()
        self._since_s = now()

    def is_token(self, token: str, address: str) -> bool:
        """Return whether a client of an address sends the token. Raises TooManyLoginsError."""
        now_s, holder = self._now(), network_of(address)
        if now_s - self._since_s >= LOGINS_PERIOD_S:
            self._since_s = now_s
            self._failed.clear()
        if self._failed.get(holder, 0) >= LOGINS_OF_ADDRESS_MAX:
            raise TooManyLoginsError
        # Bytes of a header that are not UTF-8 are lone surrogates.
        given = token.encode(errors="surrogateescape")
        if self._token and hmac.compare_digest(given, self._token):
            return True
        if holder not in self._failed and len(self._failed) >= ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[holder] += 1
        return False


def read_token(path: str) -> str:
    """Return the token in a file. Raises SecretError, also if it is so short that it could be
    guessed.
    """
    token = read_secret(path)
    if len(token) < TOKEN_CHARACTERS_MIN:
        why = (
            f"its token has fewer than {TOKEN_CHARACTERS_MIN} characters, and could be guessed:"
            " make one with `quire tls init DIR --admin-token`"
        )
        raise SecretError(path, why)
    return token

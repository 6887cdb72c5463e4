"""Authentication and authorization of clients.

Without credentials a client is anonymous, and may do everything except reading the master keys of
ledgers and fencing without one, once it has logged in if it must. The key of repair proves the role
that may, and replaces no login. Leaves logins to `bookie.server.client_logins`, ledger passwords to
the storage, which compares master keys, the key itself to `metadata.repair.repair_key`, and roles
on ledgers to `bookie.server.ledger_authorizer`.

Invariants: credentials that prove nothing refuse the connection: a client that presents a key is
never served as an anonymous one; keys are compared in constant time; however many unknown keys are
presented, the metadata service is read at most once in `KEY_READ_INTERVAL_S`; a key that was
replaced proves nothing KEY_KEPT_S after that, if the metadata service answers.

Source: protocol rule 2.3; metadata design, "Versions and security".
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, NewType

from bookie.server.client_logins import ClientLogins
from metadata.errors import MetadataError
from metadata.paths import REPAIR_KEY

Principal = NewType("Principal", str)

ANONYMOUS: Final = Principal("anonymous")
REPAIR: Final = Principal("repair")

KEY_READ_INTERVAL_S: Final = 5.0
"""Minimum time between two reads of the key because of unknown credentials, in seconds."""
KEY_KEPT_S: Final = 60.0
"""How long a key proves the role of repair after it was read, in seconds; then it is read again."""
KEY_READ_S_MAX: Final = 2.0
"""Maximum duration of a read of the key, in seconds."""


class LedgerOperation(StrEnum):
    """Operation on a ledger that can be allowed or refused."""

    ADD = "add"
    RECOVERY_ADD = "recovery_add"
    FENCE = "fence"
    READ = "read"
    WRITE_LAC = "write_lac"
    READ_ACCESS = "read_access"
    """Read the ledger's master key."""
    FENCE_WITHOUT_KEY = "fence_without_key"
    """Fence a ledger of which the bookie knows no master key."""


REPAIR_ONLY: Final = (LedgerOperation.READ_ACCESS, LedgerOperation.FENCE_WITHOUT_KEY)
"""Operations that need the key of repair, and no key of the ledger."""


class ServerAccess:
    """Check of the credentials in hellos."""

    def __init__(
        self,
        read_key: Callable[[], Awaitable[bytes | None]],
        now: Callable[[], float],
        logins: ClientLogins | None = None,
    ) -> None:
        """`read_key` returns the stored key of repair, None if there is none yet. Without `logins`,
        clients do not log in.
        """
        self.logins = logins
        self._read_key = read_key
        self._now = now
        self._key: bytes | None = None
        self._failure = ""
        self._read_at_s = 0.0
        self._next_read_s = 0.0
        self._reading = asyncio.Lock()

    async def start(self) -> None:
        """Read the key of repair. Without an answer, it is read when credentials are presented."""
        async with self._reading:
            await self._read()

    async def learn(self) -> None:
        """Read the key of repair again, unless that was done a moment ago: it may have been created
        after the last read.
        """
        async with self._reading:
            if self._now() >= self._next_read_s:
                self._next_read_s = self._now() + KEY_READ_INTERVAL_S
                await self._read()

    def authenticate(self, credentials: bytes) -> Principal | None:
        """Return the principal that a hello's credentials prove; None if they prove nothing: they
        are wrong, or `learn` must be called first.
        """
        if not credentials:
            return ANONYMOUS
        key = self._key if self._now() - self._read_at_s <= KEY_KEPT_S else None
        is_repair = key is not None and hmac.compare_digest(key, credentials)
        return REPAIR if is_repair else None

    @property
    def refusal(self) -> str:
        """Reason for refusing credentials that prove nothing, and the next step."""
        if self._failure:
            return f"the credentials could not be checked ({self._failure}): try again later"
        if self._key is None:
            return (
                f"the credentials are not known: {REPAIR_KEY} does not exist in this cluster's "
                "metadata, or was created a moment ago; read it and try again"
            )
        return f"the credentials are not the key of repair: read {REPAIR_KEY} of this cluster again"

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(KEY_READ_S_MAX):
                self._key = await self._read_key()
            self._failure = ""
        except MetadataError as error:
            self._failure = str(error)
        except TimeoutError:
            self._failure = f"the metadata service did not answer within {KEY_READ_S_MAX:g} s"
        self._read_at_s = self._now()  # without an answer, the known key is kept


def authorize(principal: Principal, operation: LedgerOperation) -> bool:
    """Return whether the credentials of `principal` are enough for an operation."""
    return operation not in REPAIR_ONLY or principal == REPAIR

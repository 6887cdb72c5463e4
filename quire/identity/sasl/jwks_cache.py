"""Keys for tokens in memory, read again from their document.

Leaves the meaning of a document to `jwks`, and reading it to a function of the caller, mostly one
of `jwks_documents`.

Invariants: a document is read when its keys are older than `refresh_s`, and when a token names an
unknown key, but never twice within REFRESH_GAP_S, however many clients ask. A client that leaves
does not stop a read. A document that cannot be read leaves the keys of the last one in use, for at
most KEYS_KEPT_S.

Source: RFC 7517, section 5; KIP-768.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Final

from quire.identity.errors import JwksError
from quire.identity.sasl.jwks import VerificationKey, find_key, parse_jwks

FILE_REFRESH_S: Final = 10.0
"""A file is read again this often, as those of certificates are."""
URL_REFRESH_S: Final = 600.0
REFRESH_GAP_S: Final = 10.0
READ_S_MAX: Final = 10.0
KEYS_KEPT_S: Final = 86_400.0

ReadDocument = Callable[[], Awaitable[bytes]]
"""Returns the document. Raises JwksError."""


class JwksCache:
    """Keys of one document. `clock_s` is the loop's, not the wall clock."""

    def __init__(
        self, read: ReadDocument, clock_s: Callable[[], float], refresh_s: float = URL_REFRESH_S
    ) -> None:
        assert refresh_s >= REFRESH_GAP_S
        self._read = read
        self._clock_s = clock_s
        self._refresh_s = refresh_s
        self._keys: tuple[VerificationKey, ...] = ()
        self._document = b""
        self._read_at_s = -math.inf
        self._tried_at_s = -math.inf
        self._reading: asyncio.Task[None] | None = None
        self.failure = ""
        """Why the last read failed; empty if it did not."""

    async def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """Return the key that a token names; see `jwks.find_key`. Raises JwksError if no document
        could be read.
        """
        if self._age_s() >= self._refresh_s:
            await self._refresh()
        found = find_key(self._keys, kid, algorithm)
        if found is None:
            await self._refresh()
            found = find_key(self._keys, kid, algorithm)
        if self._age_s() > KEYS_KEPT_S:
            why = self.failure or "no read has ended yet"
            raise JwksError(f"there are no keys for tokens: {why}")
        return found

    async def close(self) -> None:
        """Stop a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    def _age_s(self) -> float:
        return self._clock_s() - self._read_at_s

    async def _refresh(self) -> None:
        """Read the document again, or wait for a read that is under way."""
        if self._reading is None or self._reading.done():
            if self._clock_s() - self._tried_at_s < REFRESH_GAP_S:
                return
            self._tried_at_s = self._clock_s()
            self._reading = asyncio.create_task(self._read_again())
        await asyncio.shield(self._reading)

    async def _read_again(self) -> None:
        try:
            async with asyncio.timeout(READ_S_MAX):
                document = await self._read()
            if document != self._document:
                self._keys = parse_jwks(document)
                self._document = document
        except TimeoutError:
            self.failure = f"the JWKS document was not read within {READ_S_MAX:.0f} s"
        except JwksError as error:
            self.failure = str(error)
        else:
            self.failure = ""
            self._read_at_s = self._clock_s()

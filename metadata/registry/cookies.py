"""Store of the identity of each bookie.

Leaves the copies on a bookie's disks, and the comparison with them, to the bookie, and the
identity of the cluster to `cluster.py`.

Invariants: a cookie is created once and changed only by compare-and-set; the count of a bookie's
starts is `starts_before` and the node's version together, so it is the version alone until the
cookie was restored from a dump; the count never falls.

Source: protocol rules 2.1-2.2 and 10.6.
"""

from dataclasses import dataclass, replace
from typing import Final

from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import BookieId, Version, is_bookie_id
from metadata.paths import COOKIES, cookie_path
from metadata.records import Count, Ms, codec_of
from metadata.store.interface import MetadataStore


@dataclass(frozen=True, slots=True)
class CookieRecord:
    """Identity of a bookie: a random instance made at formatting, and the directories that belong
    together.
    """

    bookie_id: BookieId
    instance: bytes
    created_ms: Ms
    directory_count: Count
    directories_hash: bytes
    starts_before: Count = 0
    """Starts that were counted before this node was created: a restore creates a new node."""

    def starts_at(self, version: Version) -> int:
        """Return the count of the bookie's starts, of a cookie that was read at a version."""
        return self.starts_before + version

    def counted_at(self, starts: int, version: Version) -> "CookieRecord":
        """Return the cookie whose count at a version is `starts`."""
        return replace(self, starts_before=starts - version)


COOKIE_CODEC: Final = codec_of(CookieRecord)


class CookieStore:
    """Cookies of a cluster's bookies."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def create(self, record: CookieRecord) -> Version:
        """Store a new bookie's cookie; its instance decides an unknown outcome.

        Raises NodeExistsError when another bookie has this id, OutcomeUnknownError when the call
        can be repeated.
        """
        path = cookie_path(record.bookie_id)
        try:
            return await self._store.create(path, COOKIE_CODEC.pack(path, record))
        except (NodeExistsError, OutcomeUnknownError):
            try:
                stored, version = await self.get(record.bookie_id)
            except NodeNotFoundError:
                raise OutcomeUnknownError(path, "it was not there when read back") from None
            if stored == record:
                return version
            raise NodeExistsError(path) from None

    async def get(self, bookie_id: BookieId) -> tuple[CookieRecord, Version]:
        """Read a cookie with a fresh read. Raises NodeNotFoundError, MetadataFormatError."""
        path = cookie_path(bookie_id)
        stored = await self._store.get(path, fresh=True)
        return COOKIE_CODEC.unpack(path, stored.value), stored.version

    async def compare_and_set(self, record: CookieRecord, expected: Version) -> Version:
        """Replace a cookie. Raises VersionConflictError, NodeNotFoundError, OutcomeUnknownError."""
        path = cookie_path(record.bookie_id)
        try:
            return await self._store.compare_and_set(
                path, COOKIE_CODEC.pack(path, record), expected
            )
        except (OutcomeUnknownError, VersionConflictError):
            stored, version = await self.get(record.bookie_id)
            if stored == record and version > expected:
                return version
            raise

    async def delete(self, bookie_id: BookieId, expected: Version) -> None:
        """Remove a bookie's cookie permanently. Raises VersionConflictError, NodeNotFoundError."""
        await self._store.delete(cookie_path(bookie_id), expected)

    async def list_bookie_ids(self) -> list[BookieId]:
        """Return every bookie that has a cookie, whether it is up or not."""
        names = await self._store.children(COOKIES, fresh=True)
        return [BookieId(name) for name in names if is_bookie_id(name)]

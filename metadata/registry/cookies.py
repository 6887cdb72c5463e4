"""Store of the identity of each bookie.

Leaves the copies on a bookie's disks, and the comparison with them, to the bookie, and the
identity of the cluster to `cluster.py`.

Format: a cookie is a msgpack array [1, bookie id str, instance bin of 16 bytes, created int in
milliseconds since 1970, directory count int, directories hash bin, starts before int].

Invariants: a cookie is created once and changed only by compare-and-set; the count of a bookie's
starts is `starts_before` and the node's version together, so it is the version alone until the
cookie was restored from a dump; the count never falls.

Source: protocol rules 2.1-2.2 and 10.6.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from metadata.errors import (
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    VersionConflictError,
)
from metadata.ids import BookieId, Version, is_bookie_id
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    bytes_of,
    int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.paths import COOKIES, cookie_path
from metadata.store.interface import MetadataStore

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 7
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CookieRecord:
    """Identity of a bookie: a random instance made at formatting, and the directories that belong
    together.
    """

    bookie_id: BookieId
    instance: bytes
    created_ms: int
    directory_count: int
    directories_hash: bytes
    starts_before: int = 0
    """Starts that were counted before this node was created: a restore creates a new node."""

    def starts_at(self, version: Version) -> int:
        """Return the count of the bookie's starts, of a cookie that was read at a version."""
        return self.starts_before + version

    def counted_at(self, starts: int, version: Version) -> "CookieRecord":
        """Return the cookie whose count at a version is `starts`."""
        return replace(self, starts_before=starts - version)


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
            return await self._store.create(path, pack_cookie(record))
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
        return unpack_cookie(path, stored.value), stored.version

    async def compare_and_set(self, record: CookieRecord, expected: Version) -> Version:
        """Replace a cookie. Raises VersionConflictError, NodeNotFoundError, OutcomeUnknownError."""
        path = cookie_path(record.bookie_id)
        try:
            return await self._store.compare_and_set(path, pack_cookie(record), expected)
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


def pack_cookie(record: CookieRecord) -> bytes:
    """Return the stored form."""
    fields: list[Packed] = [
        _FORMAT_VERSION,
        record.bookie_id,
        record.instance,
        record.created_ms,
        record.directory_count,
        record.directories_hash,
        record.starts_before,
    ]
    what = f"the cookie of {record.bookie_id}"
    return pack_checked(what, fields, partial(unpack_cookie, what))


def unpack_cookie(path: str, value: bytes) -> CookieRecord:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(path, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        bookie_id = text_of(fields[1])
        if not is_bookie_id(bookie_id):
            raise FieldError(f"{bookie_id!r} is not a bookie id")
        return CookieRecord(
            bookie_id=BookieId(bookie_id),
            instance=bytes_of(fields[2]),
            created_ms=int_of(fields[3], 0, _INT64_MAX),
            directory_count=int_of(fields[4], 0, _INT64_MAX),
            directories_hash=bytes_of(fields[5]),
            starts_before=int_of(fields[6], 0, _INT64_MAX),
        )
    except FieldError as error:
        raise MetadataFormatError(path, str(error)) from error

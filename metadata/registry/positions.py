"""Position of each bookie's log, stored outside its disk so that the bookie detects an old copy of
the disk.

Leaves recording a position, and the conclusions at a start, to the bookie.

Format: a position is a msgpack array [1, incarnation bin of 16 bytes, end LSN int, [file identity
str, ...], lock identity str, time of the orderly stop int in ms since 1970 or nil].

Invariants: a position is changed only by compare-and-set; reading back decides a write with an
unknown outcome; a node whose version is lower than one seen before belongs to a metadata service
that was restored from a backup. A position that is orderly belongs to a bookie that does not run:
the next start replaces it before it registers.

Source: protocol rules 1.2, 1.3, 2.6, 9.5.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from metadata.errors import (
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import BookieId, Version
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    bytes_of,
    int_of,
    optional_int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.paths import position_path
from metadata.store.ephemeral import INCARNATION_BYTES
from metadata.store.interface import MetadataStore, find

NO_POSITION: Final = Version(-1)
"""The version of a node that does not exist."""

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 6
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PositionRecord:
    """End of a bookie's log, and the process and files to which it belonged."""

    incarnation: bytes
    """16 random bytes of the process that recorded the position."""
    end_lsn: int
    """End of the log: every record below it was durable."""
    files: tuple[str, ...]
    """The file identity of each directory's anchor."""
    lock: str
    """Identity of the lock that the process held; empty if there is none."""
    stopped_ms: int | None = None
    """Time of the orderly stop, in ms since 1970; None if there was none."""

    @property
    def is_orderly(self) -> bool:
        """Whether the process recorded the position as its last action."""
        return self.stopped_ms is not None


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A position as read, with the version for a compare-and-set."""

    record: PositionRecord | None
    """None if no position was ever recorded."""
    version: Version


class PositionStore:
    """Positions of a cluster's bookies."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def get(self, bookie_id: BookieId) -> StoredPosition:
        """Read a position with a fresh read. Raises MetadataFormatError."""
        path = position_path(bookie_id)
        stored = await find(self._store, path)
        if stored is None:
            return StoredPosition(None, NO_POSITION)
        return StoredPosition(unpack_position(path, stored.value), stored.version)

    async def put(
        self, bookie_id: BookieId, record: PositionRecord, expected: Version
    ) -> Version | None:
        """Write a position if the node is at `expected`; create the node if `expected` is
        NO_POSITION. Return the new version.

        Returns None when the node is at another version. Raises OutcomeUnknownError when the write
        may still be applied, StoreUnavailableError when it was certainly not.
        """
        path = position_path(bookie_id)
        value = pack_position(bookie_id, record)
        try:
            if expected == NO_POSITION:
                return await self._store.create(path, value)
            return await self._store.compare_and_set(path, value, expected)
        except (NodeExistsError, NodeNotFoundError, VersionConflictError):
            return None


def pack_position(bookie_id: BookieId, record: PositionRecord) -> bytes:
    """Return the stored form."""
    fields: list[Packed] = [
        _FORMAT_VERSION,
        record.incarnation,
        record.end_lsn,
        list(record.files),
        record.lock,
        record.stopped_ms,
    ]
    what = f"the position of {bookie_id}"
    return pack_checked(what, fields, partial(unpack_position, what))


def unpack_position(path: str, value: bytes) -> PositionRecord:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(path, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        incarnation = bytes_of(fields[1])
        if len(incarnation) != INCARNATION_BYTES:
            raise FieldError(
                f"an incarnation has {INCARNATION_BYTES} bytes, not {len(incarnation)}"
            )
        return PositionRecord(
            incarnation=incarnation,
            end_lsn=int_of(fields[2], 0, _INT64_MAX),
            files=tuple(text_of(each) for each in array_of(fields[3])),
            lock=text_of(fields[4]),
            stopped_ms=optional_int_of(fields[5], 0, _INT64_MAX),
        )
    except FieldError as error:
        raise MetadataFormatError(path, str(error)) from error

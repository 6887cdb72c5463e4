"""Position of each bookie's log, stored outside its disk so that the bookie detects an old copy of
the disk.

Leaves recording a position, and the conclusions at a start, to the bookie.

Invariants: a position is changed only by compare-and-set; reading back decides a write with an
unknown outcome; a node whose version is lower than one seen before belongs to a metadata service
that was restored from a backup. A position that is orderly belongs to a bookie that does not run:
the next start replaces it before it registers.

Source: protocol rules 1.2, 1.3, 2.6, 2.7, 9.5.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from metadata.errors import (
    NodeExistsError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import BookieId, Version
from metadata.paths import position_path
from metadata.records import Count, Ms, codec_of, sized
from metadata.store.ephemeral import INCARNATION_BYTES
from metadata.store.interface import MetadataStore, find

NO_POSITION: Final = Version(-1)
"""The version of a node that does not exist."""


@dataclass(frozen=True, slots=True)
class PositionRecord:
    """End of a bookie's log, and the process and files to which it belonged."""

    incarnation: Annotated[bytes, sized(INCARNATION_BYTES)]
    """16 random bytes of the process that recorded the position."""
    end_lsn: Count
    """End of the log: every record below it was durable."""
    files: tuple[str, ...]
    """The file identity of each directory's anchor."""
    lock: str
    """Identity of the lock that the process held; empty if there is none."""
    stopped_ms: Ms | None = None
    """Time of the orderly stop, in ms since 1970; None if there was none."""
    address: str = ""
    """Where the process served clients, so that lists name it when it is away; empty if it did not
    serve yet.
    """
    location: str = ""

    @property
    def is_orderly(self) -> bool:
        """Whether the process recorded the position as its last action."""
        return self.stopped_ms is not None


POSITION_CODEC: Final = codec_of(PositionRecord)


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
        return StoredPosition(POSITION_CODEC.unpack(path, stored.value), stored.version)

    async def put(
        self, bookie_id: BookieId, record: PositionRecord, expected: Version
    ) -> Version | None:
        """Write a position if the node is at `expected`; create the node if `expected` is
        NO_POSITION. Return the new version.

        Returns None when the node is at another version. Raises OutcomeUnknownError when the write
        may still be applied, StoreUnavailableError when it was certainly not.
        """
        path = position_path(bookie_id)
        value = POSITION_CODEC.pack(path, record)
        try:
            if expected == NO_POSITION:
                return await self._store.create(path, value)
            return await self._store.compare_and_set(path, value, expected)
        except (NodeExistsError, NodeNotFoundError, VersionConflictError):
            return None

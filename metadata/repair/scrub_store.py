"""Store of the bookies' scrub records, and a follower of all of them.

Leaves a record to `scrub.py`, and storing and following records to `metadata.store.records`.

Invariants: a bookie's change keeps the request that an operator stored meanwhile, and a request
keeps everything else. A record that cannot be read stops no list, and shows no damage, in a view
too: all processes decide by what they can read. Only a request replaces it.

Source: protocol rules 1.2 and 9.12.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.paths import SCRUBS
from metadata.repair.scrub import NEVER_SCRUBBED, SCRUB_CODEC, ScrubRecord
from metadata.store.interface import Cancel, MetadataStore
from metadata.store.records import BOOKIES_BY_ID, RecordKind, RecordStore, RecordView

SCRUB_KIND: Final = RecordKind[BookieId, ScrubRecord](
    SCRUBS,
    BOOKIES_BY_ID,
    SCRUB_CODEC,
    unreadable=lambda _error: ScrubRecord(is_unreadable=True),
    keeps_readable=False,
)


class ScrubStore(RecordStore[BookieId, ScrubRecord]):
    """Records of a cluster's bookies, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(SCRUB_KIND, store, rng)

    async def get(self, bookie_id: BookieId) -> ScrubRecord:
        """Read a bookie's record with a fresh read. Raises StoreUnavailableError."""
        return await self.find(bookie_id) or NEVER_SCRUBBED

    async def put(self, bookie_id: BookieId, record: ScrubRecord) -> ScrubRecord:
        """Store the bookie's own part of its record; return the record as stored. Raises
        MetadataFormatError for a stored record that cannot be read, and as `update`.
        """

        def change(stored: ScrubRecord | None) -> ScrubRecord:
            if stored is not None and stored.is_unreadable:
                raise MetadataFormatError(SCRUB_KIND.path(bookie_id), "a request replaces it")
            return replace(record, requested_ms=(stored or NEVER_SCRUBBED).requested_ms)

        return await self.update(bookie_id, change) or NEVER_SCRUBBED

    async def request(self, bookie_id: BookieId, now_ms: int) -> ScrubRecord:
        """Request a scrub of one bookie; return the record as stored. A record that cannot be read
        is replaced: the scrub finds again what is damaged. Raises as `update`.
        """

        def change(stored: ScrubRecord | None) -> ScrubRecord:
            return replace(stored or NEVER_SCRUBBED, requested_ms=now_ms, is_unreadable=False)

        return await self.update(bookie_id, change) or NEVER_SCRUBBED


class Scrubs(RecordView[BookieId, ScrubRecord]):
    """Records of all bookies, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(SCRUB_KIND, store, rng)

    def on_bad_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change of the damaged ranges, once `records` shows it."""

        def note(
            _bookie_id: BookieId, before: ScrubRecord | None, after: ScrubRecord | None
        ) -> None:
            if (before or NEVER_SCRUBBED).bad != (after or NEVER_SCRUBBED).bad:
                callback()

        return self.on_record(note)

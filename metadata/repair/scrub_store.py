"""Store of the bookies' scrub records, and a follower of all of them.

Leaves a record and its bytes to `scrub.py`.

Invariants: every change is a compare-and-set of one node; a bookie's change keeps the request that
an operator stored meanwhile, and a request keeps everything else. A record that cannot be read
stops no list, and shows no damage, in a view too: all processes decide by what they can read. Only
a request replaces it.

Source: protocol rules 1.2 and 9.12.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType

from metadata.callbacks import Callbacks
from metadata.ids import BookieId, is_bookie_id
from metadata.paths import SCRUBS, scrub_path
from metadata.repair.scrub import (
    NEVER_SCRUBBED,
    ScrubRecord,
    ScrubRecords,
    pack_scrub,
    scrub_of,
    unpack_scrub,
)
from metadata.store.child_values import READS_AT_ONCE_MAX, ChildValues
from metadata.store.interface import Cancel, MetadataStore, find
from metadata.store.value_changes import change_value


class ScrubStore:
    """Records of a cluster's bookies, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self, bookie_id: BookieId) -> ScrubRecord:
        """Read a bookie's record with a fresh read. Raises StoreUnavailableError."""
        path = scrub_path(bookie_id)
        stored = await find(self._store, path)
        return NEVER_SCRUBBED if stored is None else scrub_of(path, stored.value)

    async def get_all(self) -> ScrubRecords:
        """Read the records of all bookies that have one, with fresh reads. Raises
        StoreUnavailableError.
        """
        names = await self._store.children(SCRUBS, fresh=True)
        bookies = [BookieId(name) for name in names if is_bookie_id(name)]
        found: ScrubRecords = {}
        for start in range(0, len(bookies), READS_AT_ONCE_MAX):
            some = bookies[start : start + READS_AT_ONCE_MAX]
            found.update(zip(some, await asyncio.gather(*map(self.get, some)), strict=True))
        return found

    async def put(self, bookie_id: BookieId, record: ScrubRecord) -> ScrubRecord:
        """Store the bookie's own part of its record; return the record as stored.

        Repeats until the outcome is certain or the call is cancelled. Raises MetadataFormatError,
        StoreUnavailableError when nothing was written.
        """
        return await self._change(
            bookie_id, lambda stored: replace(record, requested_ms=stored.requested_ms)
        )

    async def request(self, bookie_id: BookieId, now_ms: int) -> ScrubRecord:
        """Request a scrub of one bookie; return the record as stored. A record that cannot be read
        is replaced: the scrub finds again what is damaged. Raises StoreUnavailableError.
        """

        def change(stored: ScrubRecord) -> ScrubRecord:
            return replace(stored, requested_ms=now_ms, is_unreadable=False)

        return await self._change(bookie_id, change, scrub_of)

    async def _change(
        self,
        bookie_id: BookieId,
        change: Callable[[ScrubRecord], ScrubRecord],
        read: Callable[[str, bytes], ScrubRecord] = unpack_scrub,
    ) -> ScrubRecord:
        path = scrub_path(bookie_id)

        def changed(value: bytes | None) -> bytes:
            stored = NEVER_SCRUBBED if value is None else read(path, value)
            return pack_scrub(path, change(stored))

        return unpack_scrub(path, await change_value(self._store, path, changed, self._rng))


class Scrubs:
    """Records of all bookies, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._records: ScrubRecords = {}
        self._callbacks = Callbacks[()]()
        self._values = ChildValues(store, SCRUBS, rng, on_value=self._put, on_gone=self._drop)

    @property
    def records(self) -> Mapping[BookieId, ScrubRecord]:
        """Records of the bookies that have one, as last read."""
        return MappingProxyType(self._records)

    def on_bad_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change of the damaged ranges, once `records` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every record, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def aclose(self) -> None:
        """Stop following; `records` keeps the last known ones."""
        await self._values.aclose()

    def _put(self, name: str, value: bytes) -> None:
        if is_bookie_id(name):
            bookie_id = BookieId(name)
            before = self._records.get(bookie_id, NEVER_SCRUBBED)
            record = self._records[bookie_id] = scrub_of(scrub_path(bookie_id), value)
            if record.bad != before.bad:
                self._callbacks.notify()

    def _drop(self, name: str) -> None:
        if self._records.pop(BookieId(name), NEVER_SCRUBBED).bad:
            self._callbacks.notify()

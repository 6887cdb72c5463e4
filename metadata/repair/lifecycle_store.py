"""States of all bookies: changed by compare-and-set, and followed.

Leaves the states and their transitions to `lifecycle.py`, and following the nodes to
`metadata.store.child_values`.

Invariants: a state changes only along the table of `lifecycle.py`, from the state that the
compare-and-set replaces; a node is never removed, so a late write never meets another node at the
same version. A record that cannot be read stops no list: the bookie is UNREADABLE, and a view keeps
its last known record if there is one.

Source: protocol rules 1.2-1.3 and 9.1.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

from metadata.callbacks import Callbacks
from metadata.ids import BookieId, is_bookie_id
from metadata.paths import LIFECYCLES, lifecycle_path
from metadata.repair.lifecycle import (
    UNCHANGED,
    BookieLifecycle,
    Lifecycle,
    changed,
    lifecycle_of,
    pack_lifecycle,
    unpack_lifecycle,
)
from metadata.store.child_values import READS_AT_ONCE_MAX, ChildValues
from metadata.store.interface import Cancel, MetadataStore, find
from metadata.store.value_changes import change_value


class LifecycleStore:
    """States of a cluster's bookies, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self, bookie_id: BookieId, *, agreed: bool = False) -> BookieLifecycle:
        """Read a bookie's state with a fresh or an agreed read. Raises StoreUnavailableError."""
        path = lifecycle_path(bookie_id)
        stored = await find(self._store, path, agreed=agreed)
        return UNCHANGED if stored is None else lifecycle_of(path, stored.value)

    async def get_all(self) -> dict[BookieId, BookieLifecycle]:
        """Read the states of all bookies that have a record, with fresh reads; every other bookie
        is active. Raises StoreUnavailableError.
        """
        names = await self._store.children(LIFECYCLES, fresh=True)
        bookies = [BookieId(name) for name in names if is_bookie_id(name)]
        found: dict[BookieId, BookieLifecycle] = {}
        for start in range(0, len(bookies), READS_AT_ONCE_MAX):
            some = bookies[start : start + READS_AT_ONCE_MAX]
            records = await asyncio.gather(*map(self.get, some))
            found.update(zip(some, records, strict=True))
        return found

    async def change(
        self,
        bookie_id: BookieId,
        to: Lifecycle,
        reason: str,
        now_ms: int,
        *,
        before: Lifecycle | None = None,
    ) -> BookieLifecycle:
        """Change a bookie's state, and return its record as stored. A bookie that is in the state
        already keeps its record. `before` is the state for which the change was decided; None for
        any.

        Repeats until the outcome is certain or the call is cancelled. Raises
        InvalidLifecycleChangeError, StoreUnavailableError when nothing was written.
        """
        path = lifecycle_path(bookie_id)

        def change(value: bytes | None) -> bytes:
            current = UNCHANGED if value is None else lifecycle_of(path, value)
            return pack_lifecycle(path, changed(bookie_id, current, to, reason, now_ms, before))

        return unpack_lifecycle(path, await change_value(self._store, path, change, self._rng))


class Lifecycles:
    """States of all bookies, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._records: dict[BookieId, BookieLifecycle] = {}
        self._callbacks = Callbacks[BookieId]()
        self._values = ChildValues(store, LIFECYCLES, rng, on_value=self._put, on_gone=self._drop)

    @property
    def records(self) -> Mapping[BookieId, BookieLifecycle]:
        """Records of the bookies that have one, as last read."""
        return MappingProxyType(self._records)

    def of(self, bookie_id: BookieId) -> BookieLifecycle:
        """Return a bookie's record as last read; an active one if it has none."""
        return self._records.get(bookie_id, UNCHANGED)

    def on_change(self, callback: Callable[[BookieId], None]) -> Cancel:
        """Call back with the bookie after each change, once `records` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every record, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def refresh(self) -> None:
        """Read the current records. Raises MetadataError."""
        await self._values.refresh()

    async def aclose(self) -> None:
        """Stop following; `records` keeps the last known states."""
        await self._values.aclose()

    def _put(self, name: str, value: bytes) -> None:
        if not is_bookie_id(name):
            return
        bookie_id = BookieId(name)
        read = unpack_lifecycle if bookie_id in self._records else lifecycle_of
        record = read(lifecycle_path(bookie_id), value)
        if self._records.get(bookie_id) != record:
            self._records[bookie_id] = record
            self._callbacks.notify(bookie_id)

    def _drop(self, name: str) -> None:
        bookie_id = BookieId(name)
        if self._records.pop(bookie_id, None) is not None:
            self._callbacks.notify(bookie_id)

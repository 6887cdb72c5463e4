"""Store of the auditor's summary.

Leaves its content to `status.py`.

Invariants: the last writer wins; no decision depends on the summary.

Source: protocol rules 1.2 and 9.3.
"""

from random import Random

from metadata.paths import REPAIR_STATUS
from metadata.repair.status import RepairStatus, pack_status, unpack_status
from metadata.store.interface import Cancel, MetadataStore, WatchCallback, find
from metadata.store.value_changes import change_value


class StatusStore:
    """The summary of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self) -> RepairStatus | None:
        """Read the summary with a fresh read; None if there is none. Raises MetadataError."""
        stored = await find(self._store, REPAIR_STATUS)
        return None if stored is None else unpack_status(REPAIR_STATUS, stored.value)

    async def put(self, status: RepairStatus) -> None:
        """Store a summary in place of the last one.

        Repeats until the outcome is certain or the call is cancelled. Raises StoreUnavailableError
        when nothing was written.
        """
        value = pack_status(REPAIR_STATUS, status)
        await change_value(self._store, REPAIR_STATUS, lambda _stored: value, self._rng)

    def watch(self, callback: WatchCallback) -> Cancel:
        """Call back after each new summary; as `MetadataStore.watch_value`."""
        return self._store.watch_value(REPAIR_STATUS, callback)

"""Store of the auditor's summary.

Leaves its content to `status.py`.

Invariants: the last writer wins; no decision depends on the summary.

Source: protocol rules 1.2 and 9.3.
"""

from random import Random
from typing import Final

from metadata.paths import REPAIR_STATUS
from metadata.repair.status import STATUS_CODEC, RepairStatus, shortened
from metadata.store.interface import Cancel, MetadataStore, WatchCallback
from metadata.store.records import RecordNode

STATUS_NODE: Final = RecordNode(REPAIR_STATUS, STATUS_CODEC)


class StatusStore:
    """The summary of a cluster, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._store = store
        self._rng = rng

    async def get(self) -> RepairStatus | None:
        """Read the summary with a fresh read; None if there is none. Raises MetadataError."""
        return await STATUS_NODE.find(self._store)

    async def put(self, status: RepairStatus) -> None:
        """Store a summary in place of the last one. Raises as `change_node`."""
        wanted = shortened(status)
        await STATUS_NODE.change(self._store, self._rng, lambda _stored: wanted)

    def watch(self, callback: WatchCallback) -> Cancel:
        """Call back after each new summary; as `MetadataStore.watch_value`."""
        return self._store.watch_value(REPAIR_STATUS, callback)

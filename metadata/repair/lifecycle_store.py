"""States of all bookies: changed by compare-and-set, and followed.

Leaves the states and their transitions to `lifecycle.py`, and storing and following the records to
`metadata.store.records`.

Invariants: a state changes only along the table of `lifecycle.py`; a node is never removed, so a
late write never meets another node at the same version. A record that cannot be read stops no list:
the bookie is UNREADABLE.

Source: protocol rules 1.2-1.3 and 9.1.
"""

from random import Random
from typing import Final

from metadata.ids import BookieId
from metadata.paths import LIFECYCLES
from metadata.repair.lifecycle import (
    LIFECYCLE_CODEC,
    UNCHANGED,
    BookieLifecycle,
    Lifecycle,
    changed,
    unreadable_lifecycle,
)
from metadata.store.interface import MetadataStore
from metadata.store.records import BOOKIES_BY_ID, RecordKind, RecordStore, RecordView

LIFECYCLE_KIND: Final = RecordKind[BookieId, BookieLifecycle](
    LIFECYCLES, BOOKIES_BY_ID, LIFECYCLE_CODEC, unreadable=unreadable_lifecycle
)


class LifecycleStore(RecordStore[BookieId, BookieLifecycle]):
    """States of a cluster's bookies, over a `MetadataStore` that it does not own."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(LIFECYCLE_KIND, store, rng)

    async def get(self, bookie_id: BookieId, *, agreed: bool = False) -> BookieLifecycle:
        """Read a bookie's state with a fresh or an agreed read. Raises StoreUnavailableError."""
        return await self.find(bookie_id, agreed=agreed) or UNCHANGED

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
        any. Raises InvalidLifecycleChangeError, and as `update`.
        """
        stored = await self.update(
            bookie_id,
            lambda current: changed(bookie_id, current or UNCHANGED, to, reason, now_ms, before),
        )
        return stored or UNCHANGED


class Lifecycles(RecordView[BookieId, BookieLifecycle]):
    """States of all bookies, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        super().__init__(LIFECYCLE_KIND, store, rng)

    def of(self, bookie_id: BookieId) -> BookieLifecycle:
        """Return a bookie's record as last read; an active one if it has none."""
        return self.records.get(bookie_id, UNCHANGED)

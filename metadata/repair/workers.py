"""Workers of repair that are up: each is registered, and all know how many there are.

Leaves what a worker does, and its share of the cluster's ceiling, to `quire.repair`; holding the
node to `ephemeral.py`, and following the nodes of other workers to `child_values.py`.

Format: the value of `/repair/workers/<worker id>` is that of an ephemeral node (`ephemeral.py`)
without content.

Invariants: one live process holds a worker's id; a worker is dropped only when a successful read
shows that it is gone.

Source: protocol rules 2.1 and 9.1.
"""

from collections.abc import Callable, Sequence
from random import Random

from metadata.callbacks import Callbacks
from metadata.errors import NameHeldError
from metadata.ids import is_bookie_id
from metadata.paths import REPAIR_WORKERS, repair_worker_path
from metadata.store.child_values import ChildValues
from metadata.store.ephemeral import HELD_WAIT_S, EphemeralKeeper
from metadata.store.interface import Cancel, MetadataStore


class WorkerRegistrar:
    """Registration of one worker, kept across sessions. A worker's id has the form of a bookie's.

    `on_lost` is called when another process holds the id: this one must stop working.
    """

    def __init__(
        self,
        store: MetadataStore,
        worker_id: str,
        rng: Random,
        *,
        on_lost: Callable[[NameHeldError], None] | None = None,
    ) -> None:
        assert is_bookie_id(worker_id), worker_id
        path = repair_worker_path(worker_id)
        self._keeper = EphemeralKeeper(store, path, b"", rng, on_lost=on_lost)

    async def start(self, *, held_wait_s: float = HELD_WAIT_S) -> None:
        """Register. Raises NameHeldError if another live process still holds the id after
        `held_wait_s`, StoreUnavailableError when the store does not answer.
        """
        await self._keeper.start(held_wait_s=held_wait_s)

    async def aclose(self) -> None:
        """Remove the registration."""
        await self._keeper.aclose()


class WorkerDirectory:
    """Ids of all live workers, kept up to date until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random) -> None:
        self._workers: dict[str, None] = {}
        self._callbacks = Callbacks[()]()
        self._values = ChildValues(
            store, REPAIR_WORKERS, rng, on_value=self._put, on_gone=self._drop
        )

    @property
    def worker_ids(self) -> Sequence[str]:
        """Ids of the live workers as last read, sorted."""
        return sorted(self._workers)

    @property
    def count(self) -> int:
        """Number of live workers as last read; 0 before a worker sees its own registration."""
        return len(self._workers)

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change, once `worker_ids` shows it."""
        return self._callbacks.add(callback)

    async def start(self) -> None:
        """Read every registration, and keep them up to date from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        await self._values.start()

    async def aclose(self) -> None:
        """Stop following; `worker_ids` keeps the last known ones."""
        await self._values.aclose()

    def _put(self, name: str, _value: bytes) -> None:
        if name not in self._workers:
            self._workers[name] = None
            self._callbacks.notify()

    def _drop(self, name: str) -> None:
        if name in self._workers:
            del self._workers[name]
            self._callbacks.notify()

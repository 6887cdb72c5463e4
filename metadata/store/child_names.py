"""Follower of the names of a node's children.

Leaves the meaning of the names to its owners, and the children's values to `child_values.py`.

Invariants: a name is dropped only when a successful read shows that it is gone, never because the
store does not answer; the names are read at most once per interval, however often they change.

Source: protocol rule 1.6; metadata design, "Storms".
"""

import asyncio
import logging
from random import Random
from typing import TYPE_CHECKING

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError
from metadata.store.interface import MetadataStore, SessionState

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

_log = logging.getLogger(__name__)


class ChildNames:
    """Names of the children of `parent`, kept up to date from `start` until `aclose`."""

    def __init__(
        self, store: MetadataStore, parent: str, rng: Random, *, interval_s: float
    ) -> None:
        self.names: tuple[str, ...] = ()
        """The names as last read, in ascending order."""
        self._store = store
        self._parent = parent
        self._rng = rng
        self._interval_s = interval_s
        self._lock = asyncio.Lock()
        """Held during reads: of two that overlap, an older answer could come last."""
        self._wake = asyncio.Event()
        self._cancel: Cancel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the names; do not wait for the store."""
        assert self._task is None, "started once"
        self._cancel = self._store.watch_children(self._parent, self._wake.set)
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def refresh(self) -> None:
        """Read the current names. Raises MetadataError."""
        await self._read(fresh=True)

    async def aclose(self) -> None:
        """Stop following; `names` keeps the last known names."""
        if self._cancel is not None:
            self._cancel()
        await cancel_and_wait(self._task)

    async def _follow(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._read(fresh=False)
                backoff.count = 0
            except MetadataError as error:
                if self._store.session_state is SessionState.CLOSED:
                    return
                _log.debug("cannot read %s, keeping the last known names: %s", self._parent, error)
                self._wake.set()
                await asyncio.sleep(backoff.next_s())
            else:
                await asyncio.sleep(self._interval_s)

    async def _read(self, *, fresh: bool) -> None:
        async with self._lock:
            self.names = tuple(sorted(await self._store.children(self._parent, fresh=fresh)))

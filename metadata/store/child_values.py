"""Follower of a node's children and their values.

Leaves the meaning of the values to its owners (`directory.py`, `broker_registry.py`,
`in_sync_reports.py`).

Invariants: a name is dropped only when a successful read shows that it is gone, never because the
store does not answer; a name that is gone is reported at once; a new or changed value is read
within `jitter_s`, once for any number of changes.

Source: metadata design, "Registration" and "Storms"; protocol rule 2.1.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.cancelling import cancel_and_wait
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.store.interface import Cancel, MetadataStore, SessionState

READS_AT_ONCE_MAX: Final = 64

_log = logging.getLogger(__name__)


class ChildValues:
    """Reports the values below `parent` until `aclose`.

    `on_value` receives the name and the value of a node that is new, has changed or may have
    changed. It may raise MetadataFormatError, which is logged. `on_gone` receives the name of a
    reported node that no longer exists. Any other exception of them is reported to the loop, and
    the values are followed further.
    """

    def __init__(
        self,
        store: MetadataStore,
        parent: str,
        rng: Random,
        *,
        on_value: Callable[[str, bytes], None],
        on_gone: Callable[[str], None],
        jitter_s: float = 0.0,
    ) -> None:
        self._store = store
        self._parent = parent
        self._rng = rng
        self._on_value = on_value
        self._on_gone = on_gone
        self._jitter_s = jitter_s
        self._watches: dict[str, Cancel] = {}
        self._due_s: dict[str, float] = {}
        self._names_changed = False
        self._lock = asyncio.Lock()
        """Held during reads: of two that overlap, an older answer could come last."""
        self._wake = asyncio.Event()
        self._cancel_names: Cancel | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read every value, and keep following them from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        assert self._task is None, "started once"
        self._cancel_names = self._store.watch_children(self._parent, self._mark_names)
        try:
            await self.refresh()
        except BaseException:
            self._cancel_watches()
            raise
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def refresh(self) -> None:
        """Read the current names, and all values whose read is delayed. Raises MetadataError."""
        async with self._lock:
            await self._read_names(jitter_s=0.0, fresh=True)
            await self._read_due(math.inf)

    async def aclose(self) -> None:
        """Stop following."""
        self._cancel_watches()
        await cancel_and_wait(self._task)

    def _cancel_watches(self) -> None:
        if self._cancel_names is not None:
            self._cancel_names()
        for cancel in self._watches.values():
            cancel()
        self._watches.clear()

    def _mark_names(self) -> None:
        self._names_changed = True
        self._wake.set()

    def _mark_changed(self, name: str) -> None:
        now = asyncio.get_running_loop().time()
        self._due_s.setdefault(name, now + self._rng.random() * self._jitter_s)
        self._wake.set()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._rng)
        while True:
            await self._wait_for_work(loop.time())
            try:
                async with self._lock:
                    if self._names_changed:
                        self._names_changed = False
                        await self._read_names(jitter_s=self._jitter_s)
                    await self._read_due(loop.time())
                backoff.count = 0
            except MetadataError as error:
                if self._store.session_state is SessionState.CLOSED:
                    return
                _log.debug("cannot read %s, keeping the last known values: %s", self._parent, error)
                self._names_changed = True
                await asyncio.sleep(backoff.next_s())

    async def _wait_for_work(self, now: float) -> None:
        if self._names_changed:
            return
        delay = max(0.0, min(self._due_s.values()) - now) if self._due_s else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._wake.wait()
        self._wake.clear()

    async def _read_names(self, *, jitter_s: float, fresh: bool = False) -> None:
        present = dict.fromkeys(await self._store.children(self._parent, fresh=fresh))
        for name in [known for known in self._watches if known not in present]:
            self._watches.pop(name)()
            self._due_s.pop(name, None)
            self._run_callback(partial(self._on_gone, name))
        now = asyncio.get_running_loop().time()
        for name in present:
            if name not in self._watches:
                self._watch(name)
                self._due_s[name] = now + self._rng.random() * jitter_s

    def _watch(self, name: str) -> None:
        self._watches[name] = self._store.watch_value(
            f"{self._parent}/{name}", lambda: self._mark_changed(name)
        )

    async def _read_due(self, now: float) -> None:
        due = [name for name, due_s in self._due_s.items() if due_s <= now]
        for start in range(0, len(due), READS_AT_ONCE_MAX):
            await asyncio.gather(
                *[self._read(name) for name in due[start : start + READS_AT_ONCE_MAX]]
            )

    async def _read(self, name: str) -> None:
        due_s = self._due_s.pop(name)
        try:
            stored = await self._store.get(f"{self._parent}/{name}")
        except NodeNotFoundError:
            self._mark_names()  # reading the names will show that it is gone
            return
        except BaseException:  # also a caller of `refresh` that waits no longer
            self._due_s.setdefault(name, due_s)
            self._wake.set()
            raise
        if name not in self._watches:
            return  # it was removed during the read
        self._run_callback(partial(self._on_value, name, stored.value))

    def _run_callback(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except MetadataFormatError as error:
            _log.warning("ignoring a value below %s: %s", self._parent, error)
        except Exception as error:  # noqa: BLE001 - it is reported; the others are still followed
            what = {"message": f"a change below {self._parent}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)

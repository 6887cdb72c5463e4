"""Shows a client which bookies are up.

Leaves choosing among them to the client's placement, and registering to `registrar.py`.

Invariants: a bookie is dropped only when a successful read says that it is gone, never because the
store does not answer; a bookie that left is told at once; what joined or changed is read within
`jitter_s`, each once.

Source: metadata.md, Registration; protocol rules 2.1 and 5.6.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Final

from metadata.ephemeral import unpack_held
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, is_bookie_id
from metadata.paths import BOOKIES, bookie_path
from metadata.pauses import Pauses
from metadata.registration import BookieRegistration, unpack_registration
from metadata.store import Cancel, MetadataStore, SessionState

JITTER_S: Final = 1.0
READS_AT_ONCE_MAX: Final = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BookieJoined:
    """A bookie is up that was not."""

    registration: BookieRegistration


@dataclass(frozen=True, slots=True)
class BookieChanged:
    """A bookie says something else about itself, or registered anew."""

    registration: BookieRegistration


@dataclass(frozen=True, slots=True)
class BookieLeft:
    """A bookie is up no more."""

    bookie_id: BookieId


DirectoryEvent = BookieJoined | BookieChanged | BookieLeft


class BookieDirectory:
    """The registrations of all live bookies, followed until `aclose`."""

    def __init__(self, store: MetadataStore, rng: Random, *, jitter_s: float = JITTER_S) -> None:
        self._store = store
        self._rng = rng
        self._jitter_s = jitter_s
        self._bookies: dict[BookieId, BookieRegistration] = {}
        self._watches: dict[BookieId, Cancel] = {}
        self._due_s: dict[BookieId, float] = {}
        self._names_changed = False
        self._wake = asyncio.Event()
        self._callbacks: dict[int, Callable[[DirectoryEvent], None]] = {}
        self._callback_count = 0
        self._cancel_names: Cancel | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def bookies(self) -> Mapping[BookieId, BookieRegistration]:
        """The live bookies, also those that are not writable, as last read."""
        return MappingProxyType(self._bookies)

    def on_event(self, callback: Callable[[DirectoryEvent], None]) -> Cancel:
        """Call back with each change, after `bookies` shows it."""
        self._callback_count += 1
        number = self._callback_count
        self._callbacks[number] = callback

        def cancel() -> None:
            self._callbacks.pop(number, None)

        return cancel

    async def start(self) -> None:
        """Read every registration, and follow them from then on.

        Raises StoreUnavailableError when the store does not answer.
        """
        assert self._task is None, "started once"
        self._cancel_names = self._store.watch_children(BOOKIES, self._mark_names)
        try:
            await self._read_names(jitter_s=0.0, fresh=True)
            await self._read_due(asyncio.get_running_loop().time())
        except BaseException:
            self._cancel_watches()
            raise
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def refresh(self) -> None:
        """Read who is registered now, and all that would be read later: for who is about to give up
        for want of bookies. Raises MetadataError.
        """
        await self._read_names(jitter_s=0.0, fresh=True)
        await self._read_due(math.inf)

    async def aclose(self) -> None:
        """Stop following; `bookies` keeps what was last known."""
        self._cancel_watches()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _cancel_watches(self) -> None:
        if self._cancel_names is not None:
            self._cancel_names()
        for cancel in self._watches.values():
            cancel()
        self._watches.clear()

    def _mark_names(self) -> None:
        self._names_changed = True
        self._wake.set()

    def _mark_changed(self, bookie_id: BookieId) -> None:
        now = asyncio.get_running_loop().time()
        self._due_s.setdefault(bookie_id, now + self._rng.random() * self._jitter_s)
        self._wake.set()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        pauses = Pauses(self._rng)
        while True:
            await self._wait_for_work(loop.time())
            try:
                if self._names_changed:
                    self._names_changed = False
                    await self._read_names(jitter_s=self._jitter_s)
                await self._read_due(loop.time())
                pauses.count = 0
            except MetadataError as error:
                if self._store.session_state is SessionState.CLOSED:
                    return
                _log.debug("the list of bookies stays as it was: %s", error)
                self._names_changed = True
                await asyncio.sleep(pauses.next_s())

    async def _wait_for_work(self, now: float) -> None:
        if self._names_changed:
            return
        delay = max(0.0, min(self._due_s.values()) - now) if self._due_s else None
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _read_names(self, *, jitter_s: float, fresh: bool = False) -> None:
        names = await self._store.children(BOOKIES, fresh=fresh)
        present = {BookieId(name): None for name in names if is_bookie_id(name)}
        for bookie_id in [known for known in self._watches if known not in present]:
            self._watches.pop(bookie_id)()
            self._drop(bookie_id)
        now = asyncio.get_running_loop().time()
        for bookie_id in present:
            if bookie_id not in self._watches:
                self._watch(bookie_id)
                self._due_s[bookie_id] = now + self._rng.random() * jitter_s

    def _watch(self, bookie_id: BookieId) -> None:
        self._watches[bookie_id] = self._store.watch_value(
            bookie_path(bookie_id), lambda: self._mark_changed(bookie_id)
        )

    async def _read_due(self, now: float) -> None:
        due = [bookie_id for bookie_id, due_s in self._due_s.items() if due_s <= now]
        for start in range(0, len(due), READS_AT_ONCE_MAX):
            await asyncio.gather(*[self._read(x) for x in due[start : start + READS_AT_ONCE_MAX]])

    async def _read(self, bookie_id: BookieId) -> None:
        due_s = self._due_s.pop(bookie_id, 0.0)  # a refresh and the follower may both read it
        path = bookie_path(bookie_id)
        try:
            stored = await self._store.get(path)
            registration = unpack_registration(unpack_held(path, stored.value).content, path)
        except NodeNotFoundError:
            self._mark_names()  # the list of names tells that it left
        except MetadataFormatError as error:
            _log.warning("a bookie is not used: %s", error)
        except MetadataError:
            self._due_s[bookie_id] = due_s
            raise
        else:
            self._put(registration)

    def _put(self, registration: BookieRegistration) -> None:
        known = self._bookies.get(registration.bookie_id)
        if known == registration:
            return
        self._bookies[registration.bookie_id] = registration
        self._tell(BookieJoined(registration) if known is None else BookieChanged(registration))

    def _drop(self, bookie_id: BookieId) -> None:
        self._due_s.pop(bookie_id, None)
        if self._bookies.pop(bookie_id, None) is not None:
            self._tell(BookieLeft(bookie_id))

    def _tell(self, event: DirectoryEvent) -> None:
        for callback in list(self._callbacks.values()):
            callback(event)

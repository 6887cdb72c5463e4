"""Table of watches, kept armed at a ZooKeeper server: each server watch fires once, and all are
lost with the connection.

Leaves the calls to `session.py`, and the order in which watches are armed to `watch_turns`.

Invariants: a callback always follows a change that was not read yet; all callbacks of a path share
one server watch; arming is limited to ARMS_PER_S; a fired watch is armed again only after
REARM_DELAY_S, so that a watch that is no longer needed (of a closed ledger) can be cancelled first
and leaves nothing at the server.

Source: metadata design, "Watches".
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from metadata.callbacks import Callbacks
from metadata.cancelling import cancel_and_wait
from metadata.store.interface import Cancel, WatchCallback
from metadata.store.zookeeper.calls import CallError, NoNode
from metadata.store.zookeeper.session import ZooKeeperSession
from metadata.store.zookeeper.watch_turns import WatchTurns

ARMS_PER_S: Final = 500
ARMS_BURST: Final = 50
REARM_DELAY_S: Final = 0.05
RETRY_DELAY_S: Final = 0.2
NO_NODE_STATE: Final = -1


class WatchKind(Enum):
    """Watched aspect of a node."""

    VALUE = "value"
    CHILDREN = "children"


@dataclass(slots=True, eq=False)
class WatchEntry:
    """One watched path. `reported` is the state found when arming last called the callbacks. Reads
    by other parts of this client do not change it: they do not show what the callbacks know.
    """

    path: str
    kind: WatchKind
    fire: Callable[[], None]
    callbacks: Callbacks[()] = field(default_factory=Callbacks[()])
    holders: Counter[str] = field(default_factory=Counter)
    """Holders of the callbacks, with the number of callbacks of each."""
    reported: int | None = None
    is_queued: bool = False
    watcher: object = None
    """The function that was given to the server's client; `arm` sets it."""


Key = tuple[WatchKind, str]
Arm = Callable[[WatchEntry], Awaitable[int]]
Drop = Callable[[WatchEntry, bool], None]


class WatchTable:
    """All watches of one store.

    `arm` sets a server watch that calls `entry.fire`, and returns a number for the state that it
    found. It raises OSError if it cannot; it is then called again after the next `rearm_all` or
    after RETRY_DELAY_S. `drop` removes `entry.watcher` where `arm` left it; its second argument
    says that nothing is being armed.
    """

    def __init__(self, arm: Arm, drop: Drop = lambda _entry, _is_quiet: None) -> None:
        self._arm = arm
        self._drop = drop
        self._arming = 0
        self._entries: dict[Key, WatchEntry] = {}
        self._turns = WatchTurns[WatchEntry]()
        self._wake = asyncio.Event()
        self._is_connected = False
        self._task = asyncio.get_running_loop().create_task(self._arm_queued())

    def add(self, path: str, kind: WatchKind, callback: WatchCallback, holder: str = "") -> Cancel:
        """Watch a path, in the turns of a holder."""
        key = (kind, path)
        entry = self._entries.get(key)
        is_new = entry is None
        if entry is None:
            entry = WatchEntry(path, kind, lambda: self._fired(key))
            self._entries[key] = entry
        entry.holders[holder] += 1
        if is_new or entry.is_queued:
            self._enqueue(entry)
        late: asyncio.Handle | None = None
        if entry.reported is not None:
            # The new caller may have read before the last change.
            late = asyncio.get_running_loop().call_soon(callback)
        remove = entry.callbacks.add(callback)
        is_cancelled = False

        def cancel() -> None:
            nonlocal is_cancelled
            if is_cancelled:
                return
            is_cancelled = True
            remove()
            if late is not None:
                late.cancel()
            self._release(entry, holder)
            if entry.callbacks.is_empty and self._is_live(entry):
                del self._entries[key]
                self._drop(entry, not self._arming)

        return cancel

    def disconnected(self) -> None:
        """Note that the server has dropped every watch."""
        self._is_connected = False

    def rearm_all(self) -> None:
        """Arm every watch again and call each callback, because changes may have been missed."""
        self._is_connected = True
        for entry in self._entries.values():
            entry.reported = None
            self._enqueue(entry)
        self._wake.set()

    async def aclose(self) -> None:
        """Remove every watch."""
        self._entries.clear()
        self._turns.clear()
        await cancel_and_wait(self._task)

    def _enqueue(self, entry: WatchEntry) -> None:
        entry.is_queued = True
        for holder in entry.holders:
            self._turns.add(entry, holder)
        self._wake.set()

    def _release(self, entry: WatchEntry, holder: str) -> None:
        entry.holders[holder] -= 1
        if not entry.holders[holder]:
            self._turns.remove(entry, holder)
            del entry.holders[holder]

    def _is_live(self, entry: WatchEntry) -> bool:
        return self._entries.get((entry.kind, entry.path)) is entry

    def _fired(self, key: Key) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.callbacks.notify()
        asyncio.get_running_loop().call_later(REARM_DELAY_S, self._rearm, entry)

    def _rearm(self, entry: WatchEntry) -> None:
        if self._is_live(entry):
            self._enqueue(entry)

    async def _arm_queued(self) -> None:
        allowance = float(ARMS_BURST)
        loop = asyncio.get_running_loop()
        counted_s = loop.time()
        while True:
            if not self._turns or not self._is_connected:
                self._wake.clear()
                await self._wake.wait()
                continue
            now = loop.time()
            allowance = min(ARMS_BURST, allowance + (now - counted_s) * ARMS_PER_S)
            counted_s = now
            if allowance < 1:
                await asyncio.sleep(1 / ARMS_PER_S)
                continue
            taken = list[WatchEntry]()
            while self._turns and len(taken) < int(allowance):
                taken.append(self._turns.take())
            allowance -= len(taken)
            await asyncio.gather(*map(self._arm_one, taken))

    async def _arm_one(self, entry: WatchEntry) -> None:
        entry.is_queued = False
        self._arming += 1
        try:
            seen = await self._arm(entry)
        except OSError:
            asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._rearm, entry)
            return
        finally:
            self._arming -= 1
            if not self._is_live(entry):
                self._drop(entry, not self._arming)
        if self._is_live(entry) and entry.reported != seen:
            entry.reported = seen
            entry.callbacks.notify()


class WatchArming:
    """Sets and removes server watches."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    async def arm(self, entry: WatchEntry) -> int:
        """Set a server watch. Raises OSError when the connection is lost first."""
        entry.watcher = watch = self._session.watcher(entry.fire)
        try:
            if entry.kind is WatchKind.VALUE:
                stat = await self._session.submit("exists", entry.path, watch=watch)
                return NO_NODE_STATE if stat is None else int(stat.mzxid)
            return await self._arm_children(entry, watch)
        except CallError as error:
            raise ConnectionError(f"cannot watch {entry.path}: {error}") from error

    def drop(self, entry: WatchEntry, is_quiet: bool) -> None:  # noqa: FBT001
        """Remove a server watch; `is_quiet`: none is being armed."""
        self._session.drop_watcher(entry.path, entry.watcher, may_prune=is_quiet)

    async def _arm_children(self, entry: WatchEntry, watch: Callable[[Any], None]) -> int:
        while True:
            try:
                _, stat = await self._session.submit(
                    "get_children", entry.path, watch=watch, include_data=True
                )
                return int(stat.pzxid)
            except NoNode:
                if await self._session.submit("exists", entry.path, watch=watch) is None:
                    return NO_NODE_STATE

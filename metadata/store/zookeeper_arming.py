"""Server watches of one ZooKeeper session.

Leaves which watches are needed, and when, to `zookeeper_watches.py`.

Source: metadata design, "Watches".
"""

from collections.abc import Callable
from typing import Any, Final

from metadata.store.zookeeper_calls import CallError, NoNode
from metadata.store.zookeeper_session import ZooKeeperSession
from metadata.store.zookeeper_watches import WatchEntry, WatchKind

NO_NODE_STATE: Final = -1


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

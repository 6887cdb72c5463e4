"""State shared by the sessions of one in-memory metadata service: the tree and the live sessions.

Leaves each session, its waiting calls and its watches to `memory.py`.

Invariants: an ephemeral node is removed with its session; every live session receives every change,
in order.

Source: ZooKeeper's sessions.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from metadata.ids import Version
from metadata.store.interface import Operation
from metadata.store.memory_faults import NoFaults, StoreFaults
from metadata.store.memory_tree import MemoryTree, NodeChange


class Session(Protocol):
    """A session that receives changes."""

    def notice(self, change: NodeChange) -> None:
        """Receive a change."""


class MemoryMetadataServer:
    """State shared by several `MemoryMetadataStore`s: the tree, and the sessions that own its
    ephemeral nodes.
    """

    def __init__(
        self,
        faults: StoreFaults | None = None,
        *,
        address: str = "memory",
        clock_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.faults = faults or NoFaults()
        self.address = address
        self.tree = MemoryTree(clock_ms)
        self._stores: dict[int, Session] = {}
        self._last_session_id = 0

    def open_session(self, store: Session) -> int:
        """Open a session for a store; return its id."""
        self._last_session_id += 1
        self._stores[self._last_session_id] = store
        return self._last_session_id

    def end_session(self, session_id: int) -> None:
        """Delete a session's ephemeral nodes; its late requests take no effect."""
        if self._stores.pop(session_id, None) is not None:
            self._notify_sessions(self.tree.remove_owned(session_id))

    def is_alive(self, session_id: int) -> bool:
        """Return whether a session is still open."""
        return session_id in self._stores

    def apply(self, session_id: int, operations: Sequence[Operation]) -> list[Version]:
        """Apply a write for a session, and notify every live session."""
        versions, changes = self.tree.apply(operations, session_id)
        self._notify_sessions(changes)
        return versions

    def _notify_sessions(self, changes: list[NodeChange]) -> None:
        for change in changes:
            for store in list(self._stores.values()):
                store.notice(change)

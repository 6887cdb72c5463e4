"""Holds what the sessions of one metadata service in memory share: the tree, and who is there.

Leaves each session, its waiting and its watches to `memory.py`.

Invariants: an ephemeral node goes with its session; every session alive hears of every change, in
their order.

Source: ZooKeeper's sessions.
"""

from collections.abc import Sequence
from typing import Protocol

from metadata.ids import Version
from metadata.store.interface import Operation
from metadata.store.memory_faults import NoFaults, StoreFaults
from metadata.store.memory_tree import Change, MemoryTree


class Session(Protocol):
    """Who hears of changes."""

    def notice(self, change: Change) -> None:
        """Take news of a change."""
        ...


class MemoryMetadataServer:
    """What several `MemoryMetadataStore`s share: the tree, and the sessions that own its ephemeral
    nodes.
    """

    def __init__(self, faults: StoreFaults | None = None, *, address: str = "memory") -> None:
        self.faults = faults or NoFaults()
        self.address = address
        self.tree = MemoryTree()
        self._stores: dict[int, Session] = {}
        self._last_session_id = 0

    def open_session(self, store: Session) -> int:
        """Begin a session for a store."""
        self._last_session_id += 1
        self._stores[self._last_session_id] = store
        return self._last_session_id

    def end_session(self, session_id: int) -> None:
        """Delete a session's ephemeral nodes; its late requests take no effect."""
        if self._stores.pop(session_id, None) is not None:
            self._announce(self.tree.remove_owned(session_id))

    def is_alive(self, session_id: int) -> bool:
        """Tell whether a session has not ended."""
        return session_id in self._stores

    def apply(self, session_id: int, operations: Sequence[Operation]) -> list[Version]:
        """Carry out a write for a session, and tell every watch."""
        versions, changes = self.tree.apply(operations, session_id)
        self._announce(changes)
        return versions

    def _announce(self, changes: list[Change]) -> None:
        for change in changes:
            for store in list(self._stores.values()):
                store.notice(change)

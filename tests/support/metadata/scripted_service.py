"""State that the servers of a scripted ZooKeeper service share: committed nodes, and sessions.

Leaves connections, watches and answers to `scripted_zookeeper`.

Source: ZooKeeper 3.9: a session belongs to the connection that it was last used on, and requests of
an earlier one are refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from metadata.store.interface import Operation
from metadata.store.memory_tree import MemoryTree, NodeChange

SESSION_TIMEOUT_MS: Final = 60_000
NO_SESSION: Final = 0


@dataclass(slots=True)
class _Session:
    owner: object
    end: Callable[[], None]


class ScriptedService:
    """A tree of committed nodes, and the sessions."""

    def __init__(self, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self.tree = MemoryTree()
        self.changes: list[NodeChange] = []
        """All changes, in order."""
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}
        self._last_id = NO_SESSION
        self._followers: list[Callable[[], None]] = []

    def on_commit(self, follower: Callable[[], None]) -> None:
        """Call a server after each commit."""
        self._followers.append(follower)

    def commit(self, operations: Sequence[Operation], session_id: int = NO_SESSION) -> None:
        """Apply all operations or none. Raises the error of the first one that fails."""
        _, changes = self.tree.apply(operations, session_id)
        self._note(changes)

    def attach(self, session_id: int, connection: object, end: Callable[[], None]) -> int:
        """Give a session, or a new one, to a connection; return its id, NO_SESSION if it has ended.
        `end` closes the connection.
        """
        if session_id == NO_SESSION:
            self._last_id += 1
            session_id = self._last_id
        elif session_id not in self._sessions:
            return NO_SESSION
        self._sessions[session_id] = _Session(connection, end)
        return session_id

    def is_owner(self, session_id: int, connection: object) -> bool:
        """Return whether a session lives and was last used on this connection."""
        session = self._sessions.get(session_id)
        return session is not None and session.owner is connection

    def move_session(self, session_id: int) -> None:
        """Move a session away from its connection, as a server does that processes an abandoned
        attempt to connect.
        """
        self._sessions[session_id].owner = object()

    def end_session(self, session_id: int) -> None:
        """End a session: its nodes go, and its connection is closed."""
        session = self._sessions.pop(session_id)
        self._note(self.tree.remove_owned(session_id))
        session.end()

    def _note(self, changes: Sequence[NodeChange]) -> None:
        self.changes += changes
        for follower in self._followers:
            follower()

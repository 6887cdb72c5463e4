"""Tree of versioned values with ZooKeeper's semantics, without sessions.

Leaves sessions, watches and faults to `memory.py`.

Invariants: a node's version counts its writes, from 0; a multi is all or nothing; an ephemeral node
has no children; `change_count` grows by one with each change, and the states of the last
CHANGES_KEPT changes can still be read.

Source: ZooKeeper's data model.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation, Stored

CHANGES_KEPT: Final = 1_000
NO_OWNER: Final = 0
FIRST_VERSION: Final = Version(0)


@dataclass(slots=True)
class _Node:
    value: bytes
    version: Version = FIRST_VERSION
    owner: int = NO_OWNER
    created_ms: int | None = None
    modified_ms: int | None = None
    children: dict[str, None] = field(default_factory=dict)

    def stored(self) -> Stored:
        is_ephemeral = self.owner != NO_OWNER
        return Stored(self.value, self.version, is_ephemeral, self.created_ms, self.modified_ms)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One created, written or deleted node: its previous value (None if it did not exist) and the
    number of the change.
    """

    number: int
    path: str
    before: Stored | None
    exists_now: bool

    @property
    def alters_children(self) -> bool:
        """Whether the change alters the set of names below the parent."""
        return (self.before is not None) != self.exists_now


def parent_of(path: str) -> str:
    """Return the parent path."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Assert that a path is absolute, without a trailing slash or an empty name."""
    assert path == "/" or (path.startswith("/") and not path.endswith("/")), path
    assert "//" not in path, path


class MemoryTree:
    """A tree of nodes; the root exists. Every method is one atomic step."""

    def __init__(self, clock_ms: Callable[[], int | None] = lambda: None) -> None:
        """Create a tree that says the times of its nodes by `clock_ms`, if that knows the time."""
        self._clock_ms = clock_ms
        self._nodes: dict[str, _Node] = {"/": _Node(b"")}
        self._changes: deque[NodeChange] = deque(maxlen=CHANGES_KEPT)
        self.change_count = 0

    def get(self, path: str, missed: int = 0) -> Stored:
        """Read a node as it was `missed` changes ago. Raises NodeNotFoundError."""
        check_path(path)
        node = self._nodes.get(path)
        stored = None if node is None else node.stored()
        for change in self._newest(missed):
            if change.path == path:
                stored = change.before
        if stored is None:
            raise NodeNotFoundError(path)
        return stored

    def children(self, path: str, missed: int = 0) -> list[str]:
        """Return the sorted names below a node as they were `missed` changes ago."""
        check_path(path)
        node = self._nodes.get(path)
        names = dict.fromkeys(node.children) if node is not None else {}
        for change in self._newest(missed):
            if change.alters_children and parent_of(change.path) == path:
                name = change.path.rpartition("/")[2]
                if change.exists_now:
                    names.pop(name, None)
                else:
                    names[name] = None
        return sorted(names)

    def exists(self, path: str) -> bool:
        """Return whether a node exists."""
        return path in self._nodes

    def apply(
        self, operations: Sequence[Operation], owner: int
    ) -> tuple[list[Version], list[NodeChange]]:
        """Apply all operations or none; `owner` is the session that owns created ephemeral nodes.

        Raises the first failing operation's error.
        """
        versions: list[Version] = []
        undo: list[Callable[[], None]] = []
        changed: list[tuple[str, Stored | None]] = []
        try:
            for operation in operations:
                check_path(operation.path)
                node = self._nodes.get(operation.path)
                before = None if node is None else node.stored()
                versions.append(self._apply_one(operation, owner, undo))
                if not isinstance(operation, Check):
                    changed.append((operation.path, before))
        except MetadataError:
            for step in reversed(undo):
                step()
            raise
        return versions, [self._record(path, before) for path, before in changed]

    def remove_owned(self, owner: int) -> list[NodeChange]:
        """Delete every ephemeral node of a session, in path order."""
        paths = sorted(path for path, node in self._nodes.items() if node.owner == owner)
        operations = [Delete(path, self._nodes[path].version) for path in paths]
        return self.apply(operations, NO_OWNER)[1]

    def _apply_one(
        self, operation: Operation, owner: int, undo: list[Callable[[], None]]
    ) -> Version:
        match operation:
            case Create(path, value, ephemeral):
                return self._create(path, value, owner if ephemeral else NO_OWNER, undo)
            case CompareAndSet(path, value, expected):
                node = self._at(path, expected)
                before = node.value, expected, node.modified_ms
                node.value, node.version = value, Version(expected + 1)
                node.modified_ms = self._clock_ms()
                undo.append(lambda: self._write(node, *before))
                return node.version
            case Delete(path, expected):
                node = self._at(path, expected)
                if node.children:
                    raise NodeNotEmptyError(path)
                self._unlink(path)
                undo.append(lambda: self._link(path, node))
                return expected
            case Check(path, expected):
                self._at(path, expected)
                return expected

    def _create(
        self, path: str, value: bytes, owner: int, undo: list[Callable[[], None]]
    ) -> Version:
        if path in self._nodes:
            raise NodeExistsError(path)
        parent = self._nodes.get(parent_of(path))
        if parent is None:
            raise NodeNotFoundError(parent_of(path))
        if parent.owner != NO_OWNER:
            raise MetadataError(f"{parent_of(path)} is ephemeral and can have no children")
        now_ms = self._clock_ms()
        self._link(path, _Node(value, FIRST_VERSION, owner, now_ms, now_ms))
        undo.append(lambda: self._unlink(path))
        return FIRST_VERSION

    def _at(self, path: str, expected: Version) -> _Node:
        assert expected >= 0, "every write names a version (rule 1.2)"
        node = self._nodes.get(path)
        if node is None:
            raise NodeNotFoundError(path)
        if node.version != expected:
            raise VersionConflictError(path, expected)
        return node

    def _link(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        self._nodes[parent_of(path)].children[path.rpartition("/")[2]] = None

    def _unlink(self, path: str) -> None:
        del self._nodes[path]
        del self._nodes[parent_of(path)].children[path.rpartition("/")[2]]

    @staticmethod
    def _write(node: _Node, value: bytes, version: Version, modified_ms: int | None) -> None:
        node.value, node.version, node.modified_ms = value, version, modified_ms

    def _record(self, path: str, before: Stored | None) -> NodeChange:
        self.change_count += 1
        change = NodeChange(self.change_count, path, before, path in self._nodes)
        self._changes.append(change)
        return change

    def _newest(self, count: int) -> list[NodeChange]:
        """Return the newest changes, newest first."""
        return [self._changes[-1 - index] for index in range(min(count, len(self._changes)))]

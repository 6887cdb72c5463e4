"""Ephemeral nodes of one session: what it may change, and what its end removes. Pure.

Leaves sending to `requests.py`, and the removal to `sessions.py`.

Invariants: only a creation that was answered OK gives rights on a node, and only until a deletion
is sent behind it. Writes have numbers in the order in which they are sent, which is that of the
store; an answer says nothing about writes behind its own.

Source: docs/security.md, "A gateway for clients".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from metadata.errors import MetadataFormatError
from metadata.store.ephemeral import unpack_held
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation, Stored

Sent = Sequence[tuple[int, Create | CompareAndSet | Delete]]
"""Writes of one request to nodes of the session, with their numbers."""


@dataclass(slots=True)
class _Node:
    values: dict[int, bytes] = field(default_factory=dict)
    """Values that the node may have, by the numbers of their writes."""
    created: int | None = None
    """Number of the creation that was answered OK; None without one."""
    deletes: dict[int, None] = field(default_factory=dict)
    """Numbers of deletions that may have taken effect."""

    @property
    def is_own(self) -> bool:
        return self.created is not None and not self.deletes


class OwnNodes:
    """Nodes of one session."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._last = 0

    def __len__(self) -> int:
        """Return the number of nodes that may be the session's."""
        return len(self._nodes)

    def __iter__(self) -> Iterator[str]:
        """Return the paths of all nodes that may be the session's."""
        return iter(self._nodes)

    def has(self, path: str) -> bool:
        """Return whether a node certainly is the session's."""
        node = self._nodes.get(path)
        return node is not None and node.is_own

    def values_of(self, path: str) -> list[bytes]:
        """Return the values that a node of the session may have."""
        node = self._nodes.get(path)
        return [] if node is None else list(node.values.values())

    def uncertain(self, path: str) -> int:
        """Return how many writes decide what a node is."""
        node = self._nodes.get(path)
        return 0 if node is None else len(node.values) + len(node.deletes)

    def wrote(self, path: str, stored: Stored, session_id: int) -> bool:
        """Return whether this session wrote what is stored. A creation without an answer proves it
        only with a value that names the session: another client may have chosen the same value.
        """
        if not stored.ephemeral or stored.value not in self.values_of(path):
            return False
        try:
            return self.has(path) or unpack_held(path, stored.value).session_id == session_id
        except MetadataFormatError:
            return False

    def begin(self, operations: Sequence[Operation]) -> Sent:
        """Note writes that are sent now; return what their outcome is noted with."""
        sent: list[tuple[int, Create | CompareAndSet | Delete]] = []
        for each in operations:
            is_new = isinstance(each, Create) and each.ephemeral
            if isinstance(each, Check) or not (is_new or each.path in self._nodes):
                continue
            self._last += 1
            sent.append((self._last, each))
            node = self._nodes.setdefault(each.path, _Node())
            if isinstance(each, Delete):
                node.deletes[self._last] = None
            else:
                node.values[self._last] = each.value
        return sent

    def note_failed(self, sent: Sent) -> None:
        """Note that writes certainly had no effect."""
        for number, each in sent:
            node = self._nodes.get(each.path)
            if node is not None:
                node.values.pop(number, None)
                node.deletes.pop(number, None)
                self._drop_empty(each.path, node)

    def note_done(self, sent: Sent) -> None:
        """Note that writes took effect: those before them at the same nodes are gone."""
        for number, each in sent:
            node = self._nodes.get(each.path)
            if node is None:
                continue
            node.values = {at: value for at, value in node.values.items() if at >= number}
            match each:
                case Create():
                    node.created = number
                case Delete():
                    is_older = node.created is not None and node.created < number
                    node.created = None if is_older else node.created
                case CompareAndSet():
                    continue
            node.deletes = dict.fromkeys(at for at in node.deletes if at > number)
            self._drop_empty(each.path, node)

    def _drop_empty(self, path: str, node: _Node) -> None:
        if not node.values and node.created is None:
            del self._nodes[path]

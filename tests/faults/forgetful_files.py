"""Small tree of files in memory that knows what a device may keep after a power cut.

Leaves the kernel's requests to `forgetful_server`.

Invariants: bytes of a file survive if they were written before its last sync. Of later writes, any
512-byte sector may be kept or lost, and the size is the one before or after. A name survives if it
existed at its directory's last sync. Of later creations, renames and removals, any may be kept or
undone.
Source: reliability design, D7-D14.
"""

import errno
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, TypeVar

SECTOR_BYTES: Final = 512
ROOT: Final = 1


@dataclass(slots=True)
class FileNode:
    """One file: its current bytes, those at its last sync, and the writes since."""

    number: int
    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    is_dirty: bool = False

    def write(self, offset: int, data: bytes) -> None:
        """Write; bytes between the end and `offset` are zero."""
        if len(self.now) < offset:
            self.now.extend(bytes(offset - len(self.now)))
        self.now[offset : offset + len(data)] = data
        self.unsynced.append((offset, data))
        self.is_dirty = True

    def resize(self, size: int) -> None:
        """Cut, or extend with zeros."""
        if size < len(self.now):
            del self.now[size:]
        else:
            self.now.extend(bytes(size - len(self.now)))
        self.is_dirty = True

    def sync(self) -> None:
        """Make all bytes written so far durable."""
        if self.is_dirty:
            self.synced = bytes(self.now)
            self.unsynced.clear()
            self.is_dirty = False

    def after_power_cut(self, rng: Random) -> bytes:
        """Return bytes that the device may have kept."""
        if not self.is_dirty:
            return self.synced
        kept_share = rng.choice((0.0, 0.3, 0.7, 1.0))
        shorter, longer = sorted((len(self.synced), len(self.now)))
        size = rng.choice((len(self.synced), len(self.now), rng.randint(shorter, longer)))
        left = bytearray(self.synced[:size])
        left.extend(bytes(size - len(left)))
        for offset, data in self.unsynced:
            for start, stop in _sectors(offset, len(data)):
                if rng.random() < kept_share and stop <= size:
                    left[start:stop] = data[start - offset : stop - offset]
        return bytes(left)


def _sectors(offset: int, size: int) -> list[tuple[int, int]]:
    """Split a write at the device's sectors."""
    first = offset // SECTOR_BYTES * SECTOR_BYTES
    cuts = [*range(first + SECTOR_BYTES, offset + size, SECTOR_BYTES), offset + size]
    return list(zip([offset, *cuts], cuts, strict=False)) if size else []


@dataclass(slots=True)
class DirectoryNode:
    """One directory: its current names, and those at its last sync."""

    number: int
    now: dict[str, "Node"] = field(default_factory=dict)
    synced: dict[str, "Node"] = field(default_factory=dict)

    def sync(self) -> None:
        """Make the current names durable."""
        self.synced = dict(self.now)

    def after_power_cut(self, rng: Random) -> dict[str, "Node"]:
        """Return names that the device may have kept."""
        left: dict[str, Node] = {}
        undone_share = rng.choice((0.0, 0.5, 1.0))
        for name in dict.fromkeys([*self.synced, *self.now]):
            now, synced = self.now.get(name), self.synced.get(name)
            is_undone = now is not synced and rng.random() < undone_share
            node = synced if is_undone else now
            if node is not None:
                left[name] = node
        return left


Node = FileNode | DirectoryNode
Made = TypeVar("Made", FileNode, DirectoryNode)


class ForgetfulFiles:
    """Complete tree, by node number."""

    def __init__(self) -> None:
        self._numbers = count(ROOT)
        self.root = DirectoryNode(next(self._numbers))
        self.nodes: dict[int, Node] = {ROOT: self.root}

    def load(self, directory: Path) -> None:
        """Load a real directory as durable contents."""
        self._load(directory, self.root)

    def _load(self, path: Path, into: DirectoryNode) -> None:
        for each in sorted(path.iterdir()):
            if each.is_dir():
                self._load(each, self.make_directory(into, each.name))
            else:
                node = self.make_file(into, each.name)
                node.write(0, each.read_bytes())
                node.sync()
        into.sync()

    def store(self, directory: Path, rng: Random) -> None:
        """Write contents that the device may have kept after a power cut to a real directory."""
        self._store(directory, self.root, rng)

    def _store(self, path: Path, node: DirectoryNode, rng: Random) -> None:
        path.mkdir()
        for name, each in node.after_power_cut(rng).items():
            if isinstance(each, DirectoryNode):
                self._store(path / name, each, rng)
            else:
                (path / name).write_bytes(each.after_power_cut(rng))

    # -- operations for the kernel ----------------------------------------------------------------

    def file(self, number: int) -> FileNode:
        """Return a file. Raises OSError."""
        node = self.nodes.get(number)
        if isinstance(node, FileNode):
            return node
        raise OSError(errno.EISDIR if node else errno.ENOENT, "no file")

    def directory(self, number: int) -> DirectoryNode:
        """Return a directory. Raises OSError."""
        node = self.nodes.get(number)
        if isinstance(node, DirectoryNode):
            return node
        raise OSError(errno.ENOTDIR if node else errno.ENOENT, "no directory")

    def named(self, parent: DirectoryNode, name: str) -> Node:
        """Return the node of a name. Raises OSError."""
        if name not in parent.now:
            raise OSError(errno.ENOENT, name)
        return parent.now[name]

    def make_file(self, parent: DirectoryNode, name: str) -> FileNode:
        """Make an empty file. Raises OSError."""
        return self._add(parent, name, FileNode(next(self._numbers)))

    def make_directory(self, parent: DirectoryNode, name: str) -> DirectoryNode:
        """Make an empty directory. Raises OSError."""
        return self._add(parent, name, DirectoryNode(next(self._numbers)))

    def _add(self, parent: DirectoryNode, name: str, node: Made) -> Made:
        if name in parent.now:
            raise OSError(errno.EEXIST, name)
        parent.now[name] = self.nodes[node.number] = node
        return node

    def rename(self, old: DirectoryNode, name: str, new: DirectoryNode, new_name: str) -> None:
        """Rename an entry, replacing the one with the new name. Raises OSError."""
        new.now[new_name] = self.named(old, name)
        if (old.number, name) != (new.number, new_name):
            del old.now[name]

    def remove(self, parent: DirectoryNode, name: str) -> None:
        """Remove a name; processes that have the file open keep it. Raises OSError."""
        self.named(parent, name)
        del parent.now[name]

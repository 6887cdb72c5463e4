"""Keeps a small tree of files in memory, and what a device would have of it after a power cut.

Leaves the kernel's requests to `forgetful_server`.

Invariants: a file's bytes survive if they were written before its last sync; of later writes any
512-byte sector may be kept or lost, and the size be the one before or after; a name survives if it
stood there at its directory's last sync; of later creations, renames and removals any may be kept
or undone. Source: reliability D7-D14.
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
    """One file: its bytes now, at its last sync, and what was written since."""

    number: int
    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    is_dirty: bool = False

    def write(self, offset: int, data: bytes) -> None:
        """Write; what lies between the end and `offset` is zero."""
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
        """Let everything written so far survive."""
        if self.is_dirty:
            self.synced = bytes(self.now)
            self.unsynced.clear()
            self.is_dirty = False

    def after_power_cut(self, rng: Random) -> bytes:
        """Return what the device may have of it."""
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
    """Cut a write at the device's sectors."""
    first = offset // SECTOR_BYTES * SECTOR_BYTES
    cuts = [*range(first + SECTOR_BYTES, offset + size, SECTOR_BYTES), offset + size]
    return list(zip([offset, *cuts], cuts, strict=False)) if size else []


@dataclass(slots=True)
class DirectoryNode:
    """One directory: its names now, and at its last sync."""

    number: int
    now: dict[str, "Node"] = field(default_factory=dict)
    synced: dict[str, "Node"] = field(default_factory=dict)

    def sync(self) -> None:
        """Let the names survive as they stand."""
        self.synced = dict(self.now)

    def after_power_cut(self, rng: Random) -> dict[str, "Node"]:
        """Return the names that the device may have."""
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
    """The whole tree, by node number."""

    def __init__(self) -> None:
        self._numbers = count(ROOT)
        self.root = DirectoryNode(next(self._numbers))
        self.nodes: dict[int, Node] = {ROOT: self.root}

    def load(self, directory: Path) -> None:
        """Take over a real directory: all of it has survived so far."""
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
        """Write to a real directory what the device may have after a power cut."""
        self._store(directory, self.root, rng)

    def _store(self, path: Path, node: DirectoryNode, rng: Random) -> None:
        path.mkdir()
        for name, each in node.after_power_cut(rng).items():
            if isinstance(each, DirectoryNode):
                self._store(path / name, each, rng)
            else:
                (path / name).write_bytes(each.after_power_cut(rng))

    # -- what the kernel asks for -----------------------------------------------------------------

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
        """Return what a name stands for. Raises OSError."""
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
        """Move a name, over what had the new one. Raises OSError."""
        new.now[new_name] = self.named(old, name)
        if (old.number, name) != (new.number, new_name):
            del old.now[name]

    def remove(self, parent: DirectoryNode, name: str) -> None:
        """Remove a name; whoever has the file open keeps it. Raises OSError."""
        self.named(parent, name)
        del parent.now[name]

"""FUSE server of files that lose unsynced data, with a power cut at a given change.

Leaves the bytes of requests to `fuse_wire`, and what survives to `forgetful_files`.

Invariant: after the cut nothing changes any more, and every requested change fails with EIO. All
answers before the cut come from a device with power.
"""

import errno
import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.faults import fuse_wire as wire
from tests.faults.forgetful_files import DirectoryNode, FileNode, ForgetfulFiles, Node
from tests.faults.fuse_wire import IN_HEADER, Opcode

if TYPE_CHECKING:
    from collections.abc import Callable

_CHANGES: Final = (
    Opcode.SETATTR,
    Opcode.MKDIR,
    Opcode.UNLINK,
    Opcode.RMDIR,
    Opcode.RENAME,
    Opcode.RENAME2,
    Opcode.WRITE,
    Opcode.FSYNC,
    Opcode.FSYNCDIR,
    Opcode.CREATE,
    Opcode.FALLOCATE,
)
_SYNCS: Final = (Opcode.FSYNC, Opcode.FSYNCDIR)
_SILENT: Final = (Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT)
_EMPTY: Final = (
    Opcode.RELEASE,
    Opcode.RELEASEDIR,
    Opcode.FLUSH,
    Opcode.ACCESS,
)
_FREE_BLOCKS: Final = 1 << 20


class ForgetfulServer:
    """One mount, from its first request to its end."""

    def __init__(self, files: ForgetfulFiles, cut_at: int) -> None:
        self.changes = 0
        self._files = files
        self._cut_at = cut_at
        self._handlers: dict[int, Callable[[int, bytes], bytes]] = {
            Opcode.INIT: self._init,
            Opcode.LOOKUP: self._look_up,
            Opcode.GETATTR: self._get_attributes,
            Opcode.SETATTR: self._set_attributes,
            Opcode.MKDIR: self._make_directory,
            Opcode.UNLINK: self._remove,
            Opcode.RMDIR: self._remove,
            Opcode.RENAME: self._rename,
            Opcode.RENAME2: self._rename,
            Opcode.OPEN: self._open,
            Opcode.OPENDIR: self._open,
            Opcode.READ: self._read,
            Opcode.WRITE: self._write,
            Opcode.STATFS: self._statistics,
            Opcode.FSYNC: self._sync,
            Opcode.FSYNCDIR: self._sync,
            Opcode.READDIR: self._list,
            Opcode.CREATE: self._create,
            Opcode.FALLOCATE: self._allocate,
        }

    @property
    def is_cut(self) -> bool:
        """Whether the power is cut."""
        return self.changes >= self._cut_at

    def serve(self, descriptor: int) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                request = os.read(descriptor, wire.REQUEST_BYTES_MAX)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # ENODEV: unmounted
            _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
            if opcode in _SILENT:
                continue
            number, result = self._answer(opcode, node, request[IN_HEADER.size :])
            size = wire.OUT_HEADER.size + len(result)
            try:
                os.write(descriptor, wire.OUT_HEADER.pack(size, -number, unique) + result)
            except OSError as error:
                if error.errno != errno.ENOENT:  # the process that sent the request has ended
                    return

    def _answer(self, opcode: int, node: int, data: bytes) -> tuple[int, bytes]:
        if opcode in _CHANGES:
            if self.is_cut:
                return errno.EIO, b""
            self.changes += 1
            if self.is_cut and opcode in _SYNCS:
                return errno.EIO, b""
        if opcode in _EMPTY:
            return 0, b""
        handler = self._handlers.get(opcode)
        if handler is None:
            return errno.ENOSYS, b""
        try:
            result = handler(node, data)
        except OSError as error:
            return error.errno or errno.EIO, b""
        if opcode in _CHANGES and self.is_cut:
            return errno.EIO, b""  # it was in progress when the power was cut: kept or lost
        return 0, result

    # -- requests ---------------------------------------------------------------------------------

    def _init(self, _: int, data: bytes) -> bytes:
        _, _, readahead, _ = wire.INIT_IN.unpack_from(data)
        return wire.INIT_OUT.pack(
            wire.MAJOR,
            wire.MINOR,
            readahead,
            wire.BIG_WRITES,
            16,
            12,
            wire.WRITE_BYTES_MAX,
            1,
            0,
            0,
            0,
        )

    def _look_up(self, node: int, data: bytes) -> bytes:
        (name,) = wire.names_of(data)
        return _entry(self._files.named(self._files.directory(node), name))

    def _get_attributes(self, node: int, _: bytes) -> bytes:
        if node not in self._files.nodes:
            raise OSError(errno.ENOENT, "no node")
        found = self._files.nodes[node]
        return wire.ATTRIBUTES_HEAD.pack(0, 0, 0) + wire.attributes(
            node, _size(found), is_directory=isinstance(found, DirectoryNode)
        )

    def _set_attributes(self, node: int, data: bytes) -> bytes:
        valid, _, _, size = wire.SETATTR_IN.unpack_from(data)
        if valid & wire.SETATTR_SIZE:
            self._files.file(node).resize(size)
        return self._get_attributes(node, b"")

    def _make_directory(self, node: int, data: bytes) -> bytes:
        (name,) = wire.names_of(data[wire.MKDIR_IN.size :])
        return _entry(self._files.make_directory(self._files.directory(node), name))

    def _create(self, node: int, data: bytes) -> bytes:
        (name,) = wire.names_of(data[wire.CREATE_IN.size :])
        made = self._files.make_file(self._files.directory(node), name)
        return _entry(made) + self._open(made.number, b"")

    def _remove(self, node: int, data: bytes) -> bytes:
        (name,) = wire.names_of(data)
        self._files.remove(self._files.directory(node), name)
        return b""

    def _rename(self, node: int, data: bytes) -> bytes:
        """Rename, in both forms; the later one has eight more bytes before the names."""
        (target,) = wire.RENAME_IN.unpack_from(data)
        rest = data[wire.RENAME_IN.size :]
        if rest[:1] == b"\0":
            rest = data[wire.RENAME2_IN.size :]
        name, new_name = wire.names_of(rest)
        files = self._files
        files.rename(files.directory(node), name, files.directory(target), new_name)
        return b""

    def _open(self, _: int, __: bytes) -> bytes:
        return wire.OPENED.pack(0, 0, 0)

    def _read(self, node: int, data: bytes) -> bytes:
        _, offset, size, *_ = wire.READ_IN.unpack_from(data)
        return bytes(self._files.file(node).now[offset : offset + size])

    def _write(self, node: int, data: bytes) -> bytes:
        _, offset, size, _, _, flags, _ = wire.WRITE_IN.unpack_from(data)
        file = self._files.file(node)
        file.write(offset, data[wire.WRITE_IN.size :][:size])
        if flags & os.O_DSYNC and not self.is_cut:  # used by LMDB to write its last page
            file.sync()
        return wire.WRITTEN.pack(size, 0)

    def _sync(self, node: int, _: bytes) -> bytes:
        self._files.nodes[node].sync()
        return b""

    def _allocate(self, node: int, data: bytes) -> bytes:
        _, offset, length, mode, _ = wire.FALLOCATE_IN.unpack_from(data)
        file = self._files.file(node)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "only growing")
        if len(file.now) < offset + length:
            file.resize(offset + length)
        return b""

    def _list(self, node: int, data: bytes) -> bytes:
        _, offset, size, *_ = wire.READ_IN.unpack_from(data)
        names = [
            (each.number, name, isinstance(each, DirectoryNode))
            for name, each in self._files.directory(node).now.items()
        ]
        return wire.directory_entries(names, offset, size)

    def _statistics(self, _: int, __: bytes) -> bytes:
        free = _FREE_BLOCKS
        return wire.STATFS.pack(free, free, free, free, free, wire.BLOCK_BYTES, 255, 4_096, 0)


def _entry(node: Node) -> bytes:
    return wire.entry(node.number, _size(node), is_directory=isinstance(node, DirectoryNode))


def _size(node: Node) -> int:
    return len(node.now) if isinstance(node, FileNode) else 0


def serve_mounted(mounted: Path, image: Path, left: Path, cut_at: int, seed: str) -> None:
    """Serve the contents of the directory `image` until it is unmounted.

    Write what a power cut leaves of it to `left`. The descriptor that `mount` returned belongs to
    this process.
    """
    files = ForgetfulFiles()
    files.load(image)
    descriptor = wire.mount(mounted)
    os.write(1, b"mounted\n")
    server = ForgetfulServer(files, cut_at)
    server.serve(descriptor)
    os.close(descriptor)
    files.store(left, Random(seed))
    os.write(1, f"{server.changes}\n".encode())

"""Kernel's FUSE protocol over /dev/fuse, as far as a bookie's files need it.

Leaves the contents of files to `forgetful_files`, and the serving process to `power_cut`. Needs
root and no library.

Format: each request is a header of 40 bytes (length u32, opcode u32, unique u64, node u64, user
u32, group u32, process u32, padding u32) and its arguments; each answer one of 16 bytes (length
u32, minus errno i32, unique u64) and its result. Everything is in the machine's byte order.
Source: linux/fuse.h, version 7.31.
"""

import ctypes
import os
import struct
from enum import IntEnum
from pathlib import Path
from typing import Final

MAJOR: Final = 7
MINOR: Final = 31
BIG_WRITES: Final = 1 << 5
WRITE_BYTES_MAX: Final = 128 * 1024
REQUEST_BYTES_MAX: Final = WRITE_BYTES_MAX + 64 * 1024
FILE_MODE: Final = 0o100600
DIRECTORY_MODE: Final = 0o040700
BLOCK_BYTES: Final = 4_096
DETACH: Final = 2
SETATTR_SIZE: Final = 1 << 3

IN_HEADER = struct.Struct("=IIQQIIII")
OUT_HEADER = struct.Struct("=IiQ")
ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")
ENTRY = struct.Struct("=QQQQII")
ATTRIBUTES_HEAD = struct.Struct("=QII")
OPENED = struct.Struct("=QII")
INIT_IN = struct.Struct("=IIII")
INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")
READ_IN = struct.Struct("=QQIIQII")
WRITE_IN = struct.Struct("=QQIIQII")
SETATTR_IN = struct.Struct("=IIQQ")
RENAME2_IN = struct.Struct("=QII")
RENAME_IN = struct.Struct("=Q")
CREATE_IN = struct.Struct("=IIII")
MKDIR_IN = struct.Struct("=II")
FALLOCATE_IN = struct.Struct("=QQQII")
WRITTEN = struct.Struct("=II")
STATFS = struct.Struct("=QQQQQIIII24x")
DIRENT = struct.Struct("=QQII")


class Opcode(IntEnum):
    """Kind of request; all others are answered with ENOSYS."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    BATCH_FORGET = 42
    FALLOCATE = 43
    RENAME2 = 45


def is_usable() -> str:
    """Return why mounting is impossible here; empty if it is possible."""
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse"
    if os.geteuid() != 0:
        return "mounting needs root"
    return ""


def mount(directory: Path) -> int:
    """Mount a file system; return the descriptor that receives its requests. Raises OSError."""
    descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0"
    library = ctypes.CDLL(None, use_errno=True)
    source, kind = b"forgetful", b"fuse.forgetful"
    if library.mount(source, bytes(directory), kind, 0, options.encode()) != 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, os.strerror(number))
    return descriptor


def unmount(directory: Path) -> None:
    """Unmount the file system of a directory."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.umount2(bytes(directory), DETACH) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def attributes(node: int, size: int, *, is_directory: bool) -> bytes:
    """Encode the attributes that `stat` shows."""
    mode = DIRECTORY_MODE if is_directory else FILE_MODE
    blocks = -(-size // 512)
    return ATTRIBUTES.pack(
        node, size, blocks, 0, 0, 0, 0, 0, 0, mode, 1 + is_directory, 0, 0, 0, BLOCK_BYTES, 0
    )


def entry(node: int, size: int, *, is_directory: bool) -> bytes:
    """Encode the node of a name; the kernel must not cache it."""
    return ENTRY.pack(node, 1, 0, 0, 0, 0) + attributes(node, size, is_directory=is_directory)


def names_of(data: bytes) -> list[str]:
    """Read names that end in a zero byte each."""
    return [part.decode() for part in data.split(b"\0")[:-1]]


def directory_entries(names: list[tuple[int, str, bool]], offset: int, size: int) -> bytes:
    """Encode the part of a listing that fits; (node, name, is a directory) each."""
    listing = b""
    for place, (node, name, is_directory) in enumerate(names[offset:], offset + 1):
        data = name.encode()
        kind = 4 if is_directory else 8
        item = DIRENT.pack(node, place, len(data), kind) + data + bytes(-len(data) % 8)
        if len(listing) + len(item) > size:
            break
        listing += item
    return listing

"""Identity of a file and of a held lock, as a real system reports them.

Leaves the choice of files to `bookie.identity.anchors`, and the consequences to
`bookie.identity.identity`.

Format: a file's identity is `<inode>@<birth time, ns>`, or `<inode>` where the file system or the
system keeps no birth time. A lock's identity is `<boot id>:<device>:<inode>`, or empty where the
system names no boot.

Invariants: copying a file gives it another identity; a restart of the machine does not. A device
number may change at a restart of the machine, so it appears only together with the boot id.

Source: protocol rule 2.6; statx(2), proc(5), stat(2) of macOS.
"""

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
BOOT_ID_MACOS: Final = b"kern.bootsessionuuid"
BOOT_ID_BYTES_MAX: Final = 64

_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_MASK: Final = struct.Struct("=I")
_INODE_OFFSET: Final = 32
_INODE: Final = struct.Struct("=Q")
_BIRTH_OFFSET: Final = 80
_BIRTH: Final = struct.Struct("=qI")
_NS_PER_S: Final = 1_000_000_000


def file_identity(path: Path) -> str:
    """Return the identity of a file. Raises OSError."""
    found = path.stat()
    born_ns = _birth_ns(path, found)
    return str(found.st_ino) if born_ns is None else f"{found.st_ino}@{born_ns}"


def is_same_file(one: str, other: str) -> bool:
    """Return whether two identities are of one file. Birth times are compared only if both have
    one: a newer kernel may report what an older one does not.
    """
    one_inode, _, one_born = one.partition("@")
    other_inode, _, other_born = other.partition("@")
    if one_inode != other_inode:
        return False
    return one_born == other_born or not (one_born and other_born)


def lock_identity(descriptor: int) -> str:
    """Return the identity of a lock file that this process holds; empty where the system names no
    boot. Raises OSError.
    """
    boot_id = _boot_id()
    found = os.fstat(descriptor)
    return f"{boot_id}:{found.st_dev}:{found.st_ino}" if boot_id else ""


def _birth_ns(path: Path, found: os.stat_result) -> int | None:
    born_s: float | None = getattr(found, "st_birthtime", None)
    if born_s is not None:  # macOS and the BSDs
        born_ns: int = getattr(found, "st_birthtime_ns", int(born_s * _NS_PER_S))
        return born_ns
    call = _statx()
    if call is None:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if call(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return None
    (mask,) = _MASK.unpack_from(buffer.raw, 0)
    if not mask & _STATX_BTIME or _INODE.unpack_from(buffer.raw, _INODE_OFFSET) != (found.st_ino,):
        return None
    seconds, nanoseconds = _BIRTH.unpack_from(buffer.raw, _BIRTH_OFFSET)
    return int(seconds * _NS_PER_S + nanoseconds)


def _statx() -> Callable[..., int] | None:
    call: Callable[..., int] | None = getattr(ctypes.CDLL(None), "statx", None)
    return call


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return _boot_id_macos()


def _boot_id_macos() -> str:
    call: Callable[..., int] | None = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if call is None:
        return ""
    buffer = ctypes.create_string_buffer(BOOT_ID_BYTES_MAX)
    size = ctypes.c_size_t(BOOT_ID_BYTES_MAX)
    if call(BOOT_ID_MACOS, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return ""
    return buffer.value.decode("ascii", errors="replace")

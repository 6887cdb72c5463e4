"""Limit on the bytes of one directory tree, for a bookie that may use a part of a file system.

Leaves the check before each write to `bookie.files.disk_real`. The index's store does not check:
its files are measured.

Invariant: between two measurements, only bytes that other programs freed make `used_bytes` too
large.
"""

from pathlib import Path

from bookie.errors import DiskFullError
from bookie.files.disk import DiskSpace


class Capacity:
    """Used and allowed bytes of the files below one directory."""

    def __init__(self, limit_bytes: int) -> None:
        """Set the limit; 0 means no limit."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, what: str, growth: int) -> None:
        """Count bytes that are about to be written. Raises DiskFullError when they do not fit."""
        if self.limit_bytes and growth > 0:
            if self.used_bytes + growth > self.limit_bytes:
                raise DiskFullError(what)
            self.used_bytes += growth

    def give(self, size: int) -> None:
        """Count bytes that were freed."""
        self.used_bytes -= size

    def bounded(self, found: DiskSpace, used_bytes: int) -> DiskSpace:
        """Set the measured bytes; return the space on the file system within the limit."""
        self.used_bytes = used_bytes
        if not self.limit_bytes:
            return found
        return DiskSpace(
            min(found.total_bytes, self.limit_bytes),
            max(0, min(found.free_bytes, self.limit_bytes - used_bytes)),
            found.device,
        )


def measure_tree(root: Path) -> int:
    """Return the bytes of all files below a directory. Files that disappear are skipped."""
    total = 0
    for path in root.rglob("*"):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        total += max(found.st_size, found.st_blocks * 512) if path.is_file() else 0
    return total

"""Description of the machine of a benchmark, including the speed of its disk.

Leaves figures of processes to `benchmarks.processes`. Facts that a system does not report are left
out.
"""

import os
import platform
import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.measures import latency_figures, megabytes_per_second
from quire.bench.comparison import processor

SYNC_PROBE_COUNT: Final = 300
SYNC_PROBE_BYTES: Final = 1024
WRITE_PROBE_COUNT: Final = 32
WRITE_PROBE_BYTES: Final = 4 * 1024 * 1024
PACKAGES: Final = ("uvloop", "crc32c", "msgpack", "lmdb", "kazoo")
MEMORY_FILESYSTEMS: Final = ("tmpfs", "ramfs")


def describe(directory: Path) -> dict[str, object]:
    """Return cores, memory, versions, the filesystem of `directory` and its raw speed."""
    return {
        "cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "processor": processor(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{sys.implementation.name} {platform.python_version()}",
        "packages": _package_versions(),
        "filesystem": filesystem(directory),
        "disk_free_bytes": shutil.disk_usage(directory).free,
        "load": _load(),
        **_probe_disk(directory),
    }


def choose_directory(wanted: Path | None) -> Path:
    """Return the directory for measured data: the given one, or the temporary directory unless that
    is in memory, where a sync costs nothing and figures have no meaning.
    """
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        return wanted
    usual = Path(tempfile.gettempdir())
    if filesystem(usual) not in MEMORY_FILESYSTEMS:
        return usual
    return Path.cwd()


def filesystem(directory: Path) -> str:
    """Return the type of the filesystem that holds `directory`, or "unknown"."""
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return "unknown"
    nearest, place = "unknown", directory.resolve()
    longest = -1
    for line in mounts.splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        path = Path(mount_point.replace("\\040", " "))
        if place.is_relative_to(path) and len(path.parts) >= longest:
            nearest, longest = kind, len(path.parts)
    return nearest


def settle() -> None:
    """Write pending data of earlier runs to the disk, so that the next run does not pay for it."""
    if hasattr(os, "sync"):
        os.sync()


def _probe_disk(directory: Path) -> dict[str, object]:
    syncs: list[float] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        block = os.urandom(SYNC_PROBE_BYTES)
        for number in range(SYNC_PROBE_COUNT):
            start = perf_counter()
            os.pwrite(descriptor, block, number * len(block))
            _sync(descriptor)
            syncs.append(perf_counter() - start)
        block = os.urandom(WRITE_PROBE_BYTES)
        start = perf_counter()
        for number in range(WRITE_PROBE_COUNT):
            os.pwrite(descriptor, block, number * len(block))
            _sync(descriptor)
        elapsed = perf_counter() - start
    size = WRITE_PROBE_COUNT * WRITE_PROBE_BYTES
    return {
        "write_and_sync_1KiB": latency_figures(syncs),
        "write_and_sync_4MiB_MB_per_s": megabytes_per_second(size, elapsed),
    }


def _sync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def _usable_cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _package_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def _load() -> list[float] | None:
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None

"""Resource usage of processes: processor time, memory, bytes written to the disk.

Leaves the choice of processes to the scripts. Without /proc every figure is None.

Format: `anonymous_bytes` is RssAnon (memory that the process allocated), `mapped_bytes` is RssFile
(pages of mapped files, including the index, which the system may reclaim).
"""

import asyncio
import contextlib
import os
from collections.abc import Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one process, or of several together, up to a moment or between two."""

    cpu_s: float | None
    anonymous_bytes: int | None
    mapped_bytes: int | None
    written_bytes: int | None

    def as_json(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return asdict(self)


Number = TypeVar("Number", int, float)


def usage_of(pid: int) -> Usage:
    """Return a process's usage so far; every field is None once it has ended."""
    status = _fields(pid, "status")
    return Usage(
        _cpu_s(pid),
        _kilobytes(status.get("RssAnon")),
        _kilobytes(status.get("RssFile")),
        _integer(_fields(pid, "io").get("write_bytes")),
    )


def used_between(before: Usage, after: Usage) -> Usage:
    """Return the growth of the counters, and the memory at the end."""
    cpu_s = None
    if before.cpu_s is not None and after.cpu_s is not None:
        cpu_s = after.cpu_s - before.cpu_s
    written = None
    if before.written_bytes is not None and after.written_bytes is not None:
        written = after.written_bytes - before.written_bytes
    return Usage(cpu_s, after.anonymous_bytes, after.mapped_bytes, written)


def total(usages: Iterable[Usage]) -> Usage:
    """Return the sum over processes; a figure that one of them lacks is None."""
    known = list(usages)
    return Usage(
        _sum([usage.cpu_s for usage in known]),
        _sum([usage.anonymous_bytes for usage in known]),
        _sum([usage.mapped_bytes for usage in known]),
        _sum([usage.written_bytes for usage in known]),
    )


def forget_peak(pid: int) -> None:
    """Reset a process's peak of memory to its current use, where the system can."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Return the maximum memory of a process since `forget_peak`; 0 if it is not known."""
    return _kilobytes(_fields(pid, "status").get("VmHWM")) or 0


def descriptors_of(pid: int) -> int:
    """Return the number of open descriptors of a process; 0 if it is not known."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


class Metered:
    """Usage of this process and some others since a moment."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        self._own_before = usage_of(os.getpid())
        self._before = [usage_of(pid) for pid in pids]

    def finish(self) -> tuple[Usage, Usage]:
        """Return the usage of this process, and of the others together, since then."""
        own = used_between(self._own_before, usage_of(os.getpid()))
        pairs = zip(self._before, self._pids, strict=True)
        return own, total([used_between(before, usage_of(pid)) for before, pid in pairs])


class PeakMemory:
    """Peak memory of one process."""

    def __init__(self) -> None:
        self.anonymous_bytes = 0
        self.mapped_bytes = 0
        self.sample_count = 0

    def note(self, usage: Usage) -> None:
        """Add one sample."""
        self.sample_count += usage.anonymous_bytes is not None
        self.anonymous_bytes = max(self.anonymous_bytes, usage.anonymous_bytes or 0)
        self.mapped_bytes = max(self.mapped_bytes, usage.mapped_bytes or 0)


@asynccontextmanager
async def watched_memory(pid: int, period_s: float = 0.1) -> "AsyncIterator[PeakMemory]":
    """Sample a process's memory until the end of the block."""
    peak = PeakMemory()

    async def sample() -> None:
        while True:
            peak.note(usage_of(pid))
            await asyncio.sleep(period_s)

    task = asyncio.create_task(sample())
    try:
        yield peak
    finally:
        task.cancel()
        peak.note(usage_of(pid))


def _sum(values: "Sequence[Number | None]") -> "Number | None":
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _cpu_s(pid: int) -> float | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain any characters: count from its end.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _fields(pid: int, name: str) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
    except OSError:
        return {}
    pairs = [line.partition(":") for line in lines]
    return {key: value.strip() for key, _, value in pairs}


def _kilobytes(text: str | None) -> int | None:
    return int(text.split()[0]) * 1024 if text else None


def _integer(text: str | None) -> int | None:
    return int(text) if text else None


def host_and_port(address: str) -> tuple[str, int]:
    """Return the two parts of an address."""
    host, _, port = address.rpartition(":")
    return host, int(port)

"""Simulated disk in memory that loses, tears and reorders unsynced data when the power fails.

Leaves the choice of faults to the test: every fault is a field of `DiskFaults` or a method of
`Platter`. `crash` cuts the power; `kill` ends only the process, and the page cache survives.

Invariants: what a returned `commit` wrote survives every crash. Of all other data, any 512-byte
sector may be kept or lost. The data of a failed sync stays readable and counts as clean: no later
sync writes it, and it is lost once its pages are evicted.
Source: reliability design, D7-D14, D20; assurance design.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bookie.errors import (
    DirectoryLockedError,
    DiskFailedError,
    DiskFullError,
    SyncFullError,
    UnreadableError,
)
from bookie.files.disk import Buffer, DiskSpace
from tests.simulation.index_store import MemoryStore

SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class Content:
    """Bytes of one simulated file, on the medium and in the page cache.

    Invariants: data written before the last successful sync is on the medium, except the data of a
    failed sync. Of all other data, any 512-byte sector may be kept or lost. Source: reliability
    design, D7-D14, D20.
    """

    identity: str = ""
    durable: bytearray = field(default_factory=bytearray)
    current: bytearray = field(default_factory=bytearray)
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    unwritten: list[tuple[int, bytes]] = field(default_factory=list)
    """Data of failed syncs: readable, clean, and not on the medium."""
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    """(First offset, end) of the ranges that the medium cannot read."""
    dropped: list[tuple[int, int]] = field(default_factory=list)
    """(Offset, size) of the ranges that the process dropped from the page cache, in order."""

    def is_readable(self, offset: int, size: int) -> bool:
        """Return whether the medium can read all of a range."""
        return all(end <= offset or first >= offset + size for first, end in self.unreadable)

    def make_durable(self) -> None:
        """Copy the data written since the last sync to the medium."""
        durable, size = self.durable, len(self.current)
        del durable[size:]
        durable.extend(bytes(size - len(durable)))
        for offset, data in self.writes:
            durable[offset : offset + len(data)] = self.current[offset : offset + len(data)]
        self.writes.clear()

    def fail_write_back(self) -> None:
        """Keep the data written since the last sync in the page cache only, for ever."""
        self.unwritten += self.writes
        self.writes.clear()

    def evict(self) -> None:
        """Drop the clean pages: the data of failed syncs is lost."""
        if self.unwritten:
            kept = self.durable[: len(self.current)]
            kept.extend(bytes(len(self.current) - len(kept)))
            for offset, data in self.writes:
                kept[offset : offset + len(data)] = self.current[offset : offset + len(data)]
            self.current[:] = kept
            self.unwritten.clear()

    def crash(self, rng: random.Random) -> None:
        """Cut the power: of unsynced data, drawn sectors are kept."""
        kept_share = rng.choice((0.0, 0.3, 0.7, 1.0))
        shorter, longer = sorted((len(self.durable), len(self.current)))
        size = rng.choice((shorter, longer, rng.randint(shorter, longer)))
        self.lose_power(size, lambda _sector: rng.random() < kept_share)

    def lose_power(self, size: int, is_kept: Callable[[int], bool]) -> None:
        """Cut the power: set this size; of unsynced data, keep the chosen sectors."""
        survived = bytearray(self.durable[:size])
        survived.extend(bytes(size - len(survived)))
        for offset, data in self.writes:
            start = 0
            while start < len(data):
                sector = (offset + start) // SECTOR_BYTES
                stop = min(len(data), (sector + 1) * SECTOR_BYTES - offset)
                if is_kept(sector) and offset + stop <= size:
                    survived[offset + start : offset + stop] = data[start:stop]
                start = stop
        self.durable, self.current, self.writes = survived, bytearray(survived), []
        self.unwritten = []


SIGNATURE_BYTES: Final = 48
"""A batch is identified by its header, which holds its CRC."""


@dataclass(slots=True)
class DiskFaults:
    """Faults of the disk, and its delays."""

    delay_s_max: float = 0.01
    capacity_bytes: int = 2**40
    index_capacity_bytes: int | None = None
    """If set, the index has a separate disk of this size."""
    failing_syncs: int = 0
    """This many of the next syncs fail, and what they were to write stays in the page cache alone.
    Everything after them would succeed again, and must not be tried.
    """
    full_syncs: int = 0
    """The same of the next syncs, which find no room."""
    failing_writes: int = 0
    """The same of the next writes: nothing of such a commit is durable, though some of it may be in
    the page cache.
    """
    loses_syncs: bool = False
    """The negative control: a sync returns and has done nothing."""
    index_commit_fails: bool = False
    preallocates: bool = False
    paused: asyncio.Event | None = None
    """When given, commits wait here before they are durable."""
    index_held: asyncio.Event | None = None
    """When given, updates of the index wait here before they begin."""


@dataclass(slots=True)
class Platter:
    """State that outlives the process: pass it to the next `CrashableDisk`."""

    names: dict[str, Content] = field(default_factory=dict)
    durable_names: dict[str, Content] = field(default_factory=dict)
    stores: dict[str, MemoryStore] = field(default_factory=dict)
    generation: int = 0
    locked: bool = False
    synced: dict[bytes, None] = field(default_factory=dict)
    """First bytes of each buffer that was ever synced, to find a batch again quickly."""
    is_formatted: bool = False
    """Whether the operator of the bookie saw its formatting succeed."""
    label: str = "disk"
    """Part of the identity of the lock and of each file that is made; a file-level copy has its
    own.
    """
    made_count: int = 0

    def crash(self, rng: random.Random) -> None:
        """Cut the power."""
        self.generation += 1
        self.locked = False
        for name in sorted({**self.names, **self.durable_names}):
            if self.names.get(name) is not self.durable_names.get(name) and rng.random() < 0.5:
                _set_or_remove(self.names, name, self.durable_names.get(name))
        self.durable_names = dict(self.names)
        for name in sorted(self.names):
            self.names[name].crash(rng)
        for name in sorted(self.stores):
            self.stores[name].crash(rng)

    def lose_power(self, is_kept: Callable[[int], bool] = lambda _sector: False) -> None:
        """Cut the power without a random draw.

        Unsynced names and commits are lost. Of unsynced bytes, only the chosen sectors are kept.
        """
        self.generation += 1
        self.locked = False
        self.names = dict(self.durable_names)
        for content in self.names.values():
            longest = max(len(content.durable), len(content.current))
            content.lose_power(longest, is_kept)
        for store in self.stores.values():
            store.lose_unsynced()

    def kill(self, rng: random.Random) -> None:
        """End the process; the kernel continues. Unsynced pages may be evicted while no process
        runs.
        """
        self.generation += 1
        self.locked = False
        for name in sorted(self.stores):
            self.stores[name].kill(rng)
        if rng.random() < 0.5:
            self.evict()

    def evict(self) -> None:
        """Drop every clean page from the page cache."""
        for content in self.names.values():
            content.evict()

    def holds(self, data: bytes) -> bool:
        """Return whether the log holds these bytes durably."""
        if data[:SIGNATURE_BYTES] in self.synced:
            return True
        names = sorted((name for name in self.names if name.startswith("log/")), reverse=True)
        return any(self.names[name].durable.find(data) >= 0 for name in names)

    def copied(self, label: str = "") -> "Platter":
        """Return a copy: another disk with the same bytes.

        A block-level copy keeps the identity of every file. With a label, the files are copied one
        by one and get new identities.
        """
        contents: dict[int, Content] = {}
        for content in (*self.names.values(), *self.durable_names.values()):
            contents[id(content)] = Content(
                f"{label} {len(contents)}" if label else content.identity,
                bytearray(content.durable),
                bytearray(content.current),
                list(content.writes),
                list(content.unwritten),
            )
        return Platter(
            {name: contents[id(each)] for name, each in self.names.items()},
            {name: contents[id(each)] for name, each in self.durable_names.items()},
            {name: store.copied() for name, store in self.stores.items()},
            is_formatted=self.is_formatted,
            label=label or self.label,
            made_count=self.made_count,
        )

    def flip_bit(self, name: str, bit: int) -> None:
        """Change one bit of a file, as a failing medium does."""
        content = self.names[name]
        content.current[bit // 8] ^= 1 << bit % 8
        content.durable[bit // 8] ^= 1 << bit % 8


def _set_or_remove(names: dict[str, Content], name: str, content: Content | None) -> None:
    if content is None:
        del names[name]
    else:
        names[name] = content


class CrashableFile:
    """One file of a `CrashableDisk`."""

    def __init__(self, disk: "CrashableDisk", name: str, content: Content) -> None:
        self.name = name
        self._disk = disk
        self._content = content
        self._is_failed = False

    @property
    def size(self) -> int:
        """See `File.size`."""
        return len(self._content.current)

    async def commit(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write in pieces, so that a crash can come between them, then sync; see `File.commit`."""
        assert not self._is_failed, "a file was used after its disk had failed"
        disk, content = self._disk, self._content
        data = b"".join(buffers)
        cuts = sorted(disk.rng.randrange(len(data) + 1) for _ in range(disk.rng.randrange(3)))
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            await disk.pause()
            if stop == len(data) and disk.faults.failing_writes:
                disk.faults.failing_writes -= 1
                raise self._failure("a write failed")
            room = disk.room_for(offset + stop - len(content.current))
            stop_here = min(stop, max(start, len(content.current) + room - offset))
            self._write(offset + start, data[start:stop_here])
            if stop_here < stop:
                raise DiskFullError(self.name)
        if disk.faults.paused is not None:
            await disk.faults.paused.wait()
        await disk.pause()
        await self._sync()
        if not disk.faults.loses_syncs:
            for buffer in buffers:
                if len(buffer) >= SIGNATURE_BYTES:
                    disk.platter.synced[bytes(buffer[:SIGNATURE_BYTES])] = None

    def read_nowait(self, offset: int, size: int) -> Buffer | None:
        """See `File.read_nowait`; which data is in memory is drawn."""
        if self._disk.rng.random() < 0.5 or not self._content.is_readable(offset, size):
            return None
        self._disk.check()
        return bytes(self._content.current[offset : offset + size])

    async def read(self, offset: int, size: int) -> Buffer:
        """See `File.read`."""
        await self._disk.pause()
        if not self._content.is_readable(offset, size):
            raise UnreadableError(self.name, "a bad sector")
        return bytes(self._content.current[offset : offset + size])

    async def truncate(self, size: int) -> None:
        """See `File.truncate`."""
        assert not self._is_failed, "a file was used after its disk had failed"
        await self._disk.pause()
        del self._content.current[size:]
        await self._sync()

    def drop_cached(self, offset: int, size: int) -> None:
        """See `File.drop_cached`; assert that the range is synced."""
        content = self._content
        assert size > 0
        if not self._disk.faults.loses_syncs:
            asked = slice(offset, offset + size)
            assert content.durable[asked] == content.current[asked]
        content.dropped.append((offset, size))

    async def close(self) -> None:
        """See `File.close`."""
        await self._disk.pause()

    def _write(self, offset: int, data: bytes) -> None:
        current = self._content.current
        if len(current) < offset:
            current.extend(bytes(offset - len(current)))
        current[offset : offset + len(data)] = data
        self._content.writes.append((offset, data))

    async def _sync(self) -> None:
        faults = self._disk.faults
        if faults.failing_syncs:
            faults.failing_syncs -= 1
            self._content.fail_write_back()
            raise self._failure("the sync failed")
        if faults.full_syncs:
            faults.full_syncs -= 1
            self._content.fail_write_back()
            self._failure("a sync found no room")
            raise SyncFullError(self.name)
        if not faults.loses_syncs:
            self._content.make_durable()

    def _failure(self, why: str) -> DiskFailedError:
        """Mark the file as unusable; return the exception to raise."""
        self._is_failed = True
        self._disk.on_failed()
        return DiskFailedError(self.name, why)


class CrashableDisk:
    """See `bookie.files.disk.Disk`; one incarnation of the process that uses the platter."""

    def __init__(
        self, platter: Platter, rng: random.Random, faults: DiskFaults | None = None
    ) -> None:
        self.on_index_stored: Callable[[MemoryStore], object] = bool
        """Receives an index when it is opened, and after each of its commits."""
        self.on_failed: Callable[[], object] = bool
        """Is called for each failure of a file."""
        self.platter = platter
        self.rng = rng
        self.faults = faults or DiskFaults()
        self.boot_id = "boot"
        """Id of the run of the machine's system; a power cut starts a new one."""
        self._generation = platter.generation
        self._is_locked = False

    def check(self) -> None:
        """Nothing of a crashed process may reach the platter."""
        assert self._generation == self.platter.generation, "a dead process used its disk"

    async def pause(self) -> None:
        """Wait for the simulated delay of the disk."""
        await asyncio.sleep(self.rng.random() * self.faults.delay_s_max)
        self.check()

    def room_for(self, growth: int) -> int:
        """Return how many of `growth` more bytes fit on the disk."""
        used = sum(len(content.current) for content in self.platter.names.values())
        return max(0, min(growth, self.faults.capacity_bytes - used))

    async def lock(self) -> None:
        """See `Disk.lock`."""
        if self._is_locked:
            return
        if self.platter.locked:
            raise DirectoryLockedError("the simulated disk")
        self._is_locked = self.platter.locked = True

    async def create(
        self, name: str, *, preallocate_bytes: int = 0, background: bool = False
    ) -> CrashableFile:
        """See `Disk.create`."""
        await self.pause()
        assert name not in self.platter.names
        self.platter.made_count += 1
        content = Content(f"{self.platter.label} made {self.platter.made_count}")
        if preallocate_bytes and self.faults.preallocates:
            if self.room_for(preallocate_bytes) < preallocate_bytes:
                raise DiskFullError(name)
            content.current.extend(bytes(preallocate_bytes))
            content.durable.extend(bytes(preallocate_bytes))
        self.platter.names[name] = content
        return CrashableFile(self, name, content)

    async def open(self, name: str) -> CrashableFile:
        """See `Disk.open`."""
        await self.pause()
        if name not in self.platter.names:
            raise FileNotFoundError(name)
        return CrashableFile(self, name, self.platter.names[name])

    async def list_names(self, directory: str) -> list[str]:
        """See `Disk.list_names`."""
        await self.pause()
        prefix = directory + "/"
        return sorted(
            name.removeprefix(prefix) for name in self.platter.names if name.startswith(prefix)
        )

    async def rename(self, old: str, new: str) -> None:
        """See `Disk.rename`."""
        await self.pause()
        self.platter.names[new] = self.platter.names.pop(old)

    async def unlink(self, name: str) -> None:
        """See `Disk.unlink`."""
        await self.pause()
        del self.platter.names[name]

    async def sync_directory(self, directory: str) -> None:
        """See `Disk.sync_directory`."""
        await self.pause()
        platter, prefix = self.platter, directory + "/"
        for name in sorted({**platter.names, **platter.durable_names}):
            if name.startswith(prefix) and not self.faults.loses_syncs:
                if name in platter.names:
                    platter.durable_names[name] = platter.names[name]
                else:
                    del platter.durable_names[name]

    async def file_identity(self, name: str) -> str:
        """See `Disk.file_identity`."""
        await self.pause()
        if name not in self.platter.names:
            raise FileNotFoundError(name)
        return self.platter.names[name].identity

    async def lock_identity(self) -> str:
        """See `Disk.lock_identity`."""
        return f"{self.boot_id}:{self.platter.label}" if self._is_locked else ""

    async def space(self, directory: str = "") -> DiskSpace:
        """See `Disk.space`."""
        await self.pause()
        index_bytes = self.faults.index_capacity_bytes
        if directory == "index" and index_bytes is not None:
            used = sum(store.sizes().used_bytes for store in self.platter.stores.values())
            return DiskSpace(index_bytes, max(0, index_bytes - used), device=1)
        return DiskSpace(self.faults.capacity_bytes, self.room_for(self.faults.capacity_bytes))

    async def open_index(self, name: str, map_bytes: int) -> MemoryStore:
        """See `Disk.open_index`."""
        assert map_bytes > 0
        await self.pause()
        store = self.platter.stores.setdefault(name, MemoryStore())
        store.attach(
            self.pause,
            lambda: self.faults.index_commit_fails,
            lambda: self.on_index_stored(store),
            self._hold_index,
        )
        return store

    async def _hold_index(self) -> None:
        if self.faults.index_held is not None:
            await self.faults.index_held.wait()
            self.check()

    async def close(self) -> None:
        """See `Disk.close`."""
        if self._is_locked:
            self._is_locked = self.platter.locked = False

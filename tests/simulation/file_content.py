"""Bytes of one simulated file, on the medium and in the page cache.

Leaves names, and the times of writes and syncs, to `tests.simulation.disk`.

Invariants: data written before the last successful sync is on the medium, except the data of a
failed sync. Of all other data, any 512-byte sector may be kept or lost.
Source: reliability design, D7-D14, D20.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class Content:
    """Bytes on the medium, and bytes that a process reads."""

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

"""Holds the batches of one log that were read and not returned yet, for whoever reads on there.

Leaves reading them to `log_reading`, and reading more of them early to `read_ahead`.

Invariants: batches are in the order of their offsets, and none ends below `next_offset`; none is
given that has a record at or above the reader's limit; the buffer that batches were received in
counts in full until the last of them was given.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata.ids import EntryId, LedgerId

Batch = bytes | memoryview


class ReadBatch(NamedTuple):
    """A record batch, and the entry that it is. A tuple, for one is made for each batch read."""

    last_offset: int
    ledger_id: LedgerId
    entry_id: EntryId
    data: memoryview


@dataclass(slots=True)
class Answer:
    """What one read returns: whole batches below `limit`, and no more bytes than `bytes_max`, save
    that with `at_least_one` the first is returned whatever its size.
    """

    limit: int
    bytes_max: int
    at_least_one: bool
    batches: list[Batch] = field(default_factory=list)
    size: int = 0
    newest: ReadBatch | None = None
    is_ended: bool = False
    """Whether the next batch is one that is not to be returned."""

    @property
    def has_room(self) -> bool:
        """Tell whether the next batch would fit too, if it is as large as the others."""
        count = len(self.batches)
        return not self.is_ended and (not count or self.size + self.size / count <= self.bytes_max)


class KeptBatches:
    """The batches from one offset on; empty at first."""

    __slots__ = ("_batches", "_frees", "next_offset", "read_offset", "size")

    def __init__(self, offset: int) -> None:
        self.next_offset = offset
        """Where the next read goes on."""
        self.read_offset = offset
        """Behind what was read so far."""
        self.size = 0
        """The bytes of all buffers that are held for what is kept."""
        self._batches: deque[ReadBatch] = deque()
        self._frees: deque[int] = deque()  # of each batch: the bytes that go with it

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, offset: int, piece: Sequence[ReadBatch]) -> None:
        """Keep what was read from an offset on; nothing of it if that is not `read_offset` now."""
        if offset != self.read_offset:
            return
        held: object = None
        frees: deque[int] = deque()
        for batch in reversed(piece):
            buffer = batch.data.obj
            frees.appendleft(0 if buffer is held else memoryview(buffer).nbytes)
            held = buffer
        self._batches += piece
        self._frees += frees
        self.size += sum(frees)
        if piece:
            self.read_offset = piece[-1].last_offset + 1

    def give(self, answer: Answer) -> None:
        """Move into an answer what it has room for."""
        batches, limit, bytes_max = self._batches, answer.limit, answer.bytes_max
        while batches:
            batch = batches[0]
            size = answer.size + len(batch.data)
            is_first = answer.at_least_one and not answer.batches
            if batch.last_offset >= limit or (size > bytes_max and not is_first):
                answer.is_ended = True
                return
            batches.popleft()
            self.size -= self._frees.popleft()
            self.next_offset = batch.last_offset + 1
            answer.batches.append(batch.data)
            answer.size = size
            answer.newest = batch

    def clear(self) -> None:
        """Keep nothing any more."""
        self._batches.clear()
        self._frees.clear()
        self.size = 0
        self.read_offset = self.next_offset

"""Batches of one log that were read ahead and not returned yet.

Leaves reading them to `log_reader`, and reading ahead to `read_ahead`.

Invariants: batches are in the order of their offsets, and none ends below `next_offset`; a batch
with a record at or above the reader's limit is not returned; the buffer in which batches were
received counts in full until the last of them is returned.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata.ids import EntryId, LedgerId

Batch = bytes | memoryview


class ReadBatch(NamedTuple):
    """A record batch, and its entry. A tuple, because one is created for each batch read."""

    last_offset: int
    ledger_id: LedgerId
    entry_id: EntryId
    data: memoryview


@dataclass(slots=True)
class BatchSelection:
    """Complete batches below `limit` for one read, at most `bytes_max` bytes in total.

    With `at_least_one`, the first batch is returned whatever its size.
    """

    limit: int
    bytes_max: int
    at_least_one: bool
    batches: list[Batch] = field(default_factory=list)
    size: int = 0
    newest: ReadBatch | None = None
    is_ended: bool = False
    """Whether the next batch must not be returned by this read."""

    @property
    def has_room(self) -> bool:
        """Whether the next batch would fit too, if it has the average size of the others."""
        count = len(self.batches)
        return not self.is_ended and (not count or self.size + self.size / count <= self.bytes_max)


class KeptBatches:
    """Consecutive batches from one offset on; empty at first."""

    __slots__ = ("_batches", "_frees", "next_offset", "read_offset", "size")

    def __init__(self, offset: int) -> None:
        self.next_offset = offset
        """The offset where the next read continues."""
        self.read_offset = offset
        """The offset after the last batch that was read."""
        self.size = 0
        """Bytes of all buffers that contain kept batches."""
        self._batches: deque[ReadBatch] = deque()
        self._frees: deque[int] = deque()  # for each batch: the bytes freed when it is returned

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, offset: int, piece: Sequence[ReadBatch]) -> None:
        """Keep batches that were read from `offset` on, if that is still `read_offset`."""
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

    def move_into(self, selection: BatchSelection) -> None:
        """Move batches into a selection while it has room for them."""
        batches, limit, bytes_max = self._batches, selection.limit, selection.bytes_max
        while batches:
            batch = batches[0]
            size = selection.size + len(batch.data)
            is_first = selection.at_least_one and not selection.batches
            if batch.last_offset >= limit or (size > bytes_max and not is_first):
                selection.is_ended = True
                return
            batches.popleft()
            self.size -= self._frees.popleft()
            self.next_offset = batch.last_offset + 1
            selection.batches.append(batch.data)
            selection.size = size
            selection.newest = batch

    def clear(self) -> None:
        """Drop all batches."""
        self._batches.clear()
        self._frees.clear()
        self.size = 0
        self.read_offset = self.next_offset

"""Tests of read-ahead: cursors of sequential readers, limits, and errors."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log import read_ahead
from broker_layer.log.read_ahead import (
    AHEAD_BYTES_MAX,
    BATCH_COST_BYTES,
    CURSORS_MAX,
    PIECE_BYTES_MIN,
    PIECES_AHEAD,
    AheadMemory,
    BatchSelection,
    ReadAhead,
    ReadBatch,
)
from metadata.ids import EntryId, LedgerId
from tests.until import until

BATCH_BYTES = PIECE_BYTES_MIN // 4
"""Size of one batch; a read requests two of them."""
WANTED = 2 * BATCH_BYTES
END = 1_000


class Ledger:
    """Log of batches of one record each, whose reads can be delayed or fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.end = END
        self.gate = asyncio.Event()
        self.gate.set()
        self.held_from = 0
        """Reads from here on wait for the gate."""
        self.failure: Exception | None = None
        self.cancelled = 0

    async def read_piece(self, offset: int, bytes_max: int) -> Sequence[ReadBatch]:
        self.asked.append((offset, bytes_max))
        try:
            if offset >= self.held_from:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        last = min(self.end, offset + max(1, bytes_max // BATCH_BYTES))
        return [
            ReadBatch(number, LedgerId(1), EntryId(number), memoryview(bytearray(BATCH_BYTES)))
            for number in range(offset, last)
        ]


class Reading:
    """Reader that uses a `ReadAhead` as a log does."""

    def __init__(self, memory: AheadMemory) -> None:
        self.ledger = Ledger()
        self.memory = memory
        self.ahead = ReadAhead(self.ledger.read_piece, memory)

    async def read(self, offset: int, *, limit: int = END, bytes_max: int = WANTED) -> int:
        """Read from an offset on; return the end offset of the result."""
        cursor = self.ahead.take(offset)
        selection = BatchSelection(limit, bytes_max, at_least_one=True)
        try:
            cursor.kept.move_into(selection)
            while selection.has_room and cursor.kept.read_offset < limit:
                if not await self.ahead.add_piece(cursor, bytes_max - selection.size):
                    break
                cursor.kept.move_into(selection)
        except BaseException:
            self.ahead.drop(cursor)
            raise
        self.ahead.keep(cursor, limit, bytes_max)
        end = offset + len(selection.batches)
        assert selection.newest is None or selection.newest.last_offset + 1 == end, (
            "nothing is left out"
        )
        return end


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    reading = Reading(AheadMemory())
    yield reading
    reading.ledger.gate.set()
    await reading.ahead.aclose()
    assert reading.memory.used_bytes == 0


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_single_read_reads_nothing_ahead(reading: Reading) -> None:
    await reading.read(0)
    await reading.read(100)
    await settled()
    assert [offset for offset, _ in reading.ledger.asked] == [0, 100]
    assert reading.memory.used_bytes == 0


async def test_sequential_reads_use_read_ahead(reading: Reading) -> None:
    offset = 0
    for _ in range(20):
        offset = await reading.read(offset)
        await settled()
    assert offset == 40
    asked = list(reading.ledger.asked)
    assert [each for each, _ in asked] == sorted(each for each, _ in asked)
    reading.ledger.failure = AssertionError("all of this was read before")
    assert await reading.read(offset) == offset + 2


async def test_kept_pieces_are_limited(reading: Reading) -> None:
    offset = await reading.read(await reading.read(0))
    await settled()
    piece = reading.ledger.asked[-1][1]
    piece_cost = piece + piece // BATCH_BYTES * BATCH_COST_BYTES
    assert piece < reading.memory.used_bytes <= PIECES_AHEAD * piece_cost
    assert await reading.read(offset) == offset + 2


async def test_memory_of_all_logs_is_limited() -> None:
    memory = AheadMemory(3 * PIECE_BYTES_MIN)
    logs = [Reading(memory) for _ in range(5)]
    for log in logs:
        offset = 0
        for _ in range(6):
            offset = await log.read(offset)
            await settled()
            assert memory.used_bytes <= 3 * PIECE_BYTES_MIN
        assert offset == 12
    for log in logs:
        await log.ahead.aclose()
    assert memory.used_bytes == 0


async def test_surplus_is_dropped_without_memory_and_read_again() -> None:
    log = Reading(AheadMemory(0))
    offset = 0
    for bytes_max in (1, 1, WANTED, 1, 3 * WANTED, 1):
        cursor = log.ahead.take(offset)
        assert not cursor.kept
        log.ahead.drop(cursor)
        before = offset
        offset = await log.read(offset, bytes_max=bytes_max)
        assert offset == before + max(1, bytes_max // BATCH_BYTES)
    await log.ahead.aclose()


async def test_small_batches_count_with_overhead() -> None:
    count, buffer = 1_000, memoryview(bytearray(1_000))

    async def read_piece(offset: int, bytes_max: int) -> Sequence[ReadBatch]:
        del bytes_max
        last = offset + count
        return [ReadBatch(at, LedgerId(1), EntryId(at), buffer[:1]) for at in range(offset, last)]

    memory = AheadMemory()
    ahead = ReadAhead(read_piece, memory)
    cursor = ahead.take(0)
    await ahead.add_piece(cursor, 1)
    ahead.keep(cursor, END, 1)
    assert memory.used_bytes == len(buffer) + count * BATCH_COST_BYTES
    await ahead.aclose()
    assert memory.used_bytes == 0


async def test_no_batch_is_skipped_when_memory_fills(reading: Reading) -> None:
    reading.ledger.held_from = 12  # the second piece that is read ahead begins there
    reading.ledger.gate.clear()
    offset = await reading.read(await reading.read(0))
    await settled()
    assert reading.ledger.asked[-1][0] == 12
    reading.memory.change(AHEAD_BYTES_MAX)
    offset = await reading.read(offset)
    reading.ledger.gate.set()
    await settled()
    while offset < 30:
        offset = await reading.read(offset)
    reading.memory.change(-AHEAD_BYTES_MAX)


async def test_nothing_is_read_ahead_at_or_above_limit(reading: Reading) -> None:
    offset = await reading.read(await reading.read(0, limit=4), limit=4)
    await settled()
    assert offset == 4
    assert [each for each, _ in reading.ledger.asked] == [0, 2]


async def reading_ahead(reading: Reading) -> int:
    """Read sequentially until a piece is being read ahead; return the reader's offset."""
    offset = await reading.read(await reading.read(0))
    reading.ledger.gate.clear()
    await settled()
    assert len(reading.ledger.asked) == 3
    return offset


async def test_read_waits_for_piece_being_read(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    read = asyncio.create_task(reading.read(offset))
    await settled()
    assert not read.done()
    assert len(reading.ledger.asked) == 3
    reading.ledger.gate.set()
    assert await read == offset + 2


async def test_error_of_piece_is_raised_by_read_that_needs_it(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    reading.ledger.failure = TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "no bookie answers")
    reading.ledger.gate.set()
    await settled()
    assert len(reading.ledger.asked) == 3, "it is not tried again"
    with pytest.raises(TopicError):
        await reading.read(offset)
    reading.ledger.failure = None
    assert await reading.read(offset) == offset + 2


async def test_error_of_piece_is_not_raised_by_later_read(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    reading.ledger.failure = TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "no bookie answers")
    reading.ledger.gate.set()
    await settled()
    reading.ledger.failure = None
    assert await reading.read(offset) == offset + 2


async def test_expired_cursor_is_dropped(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "KEPT_S", 0.01)
    offset = await reading.read(await reading.read(0))
    await until(lambda: reading.memory.used_bytes == 0)
    assert await reading.read(offset) == offset + 2


async def test_cursors_of_log_are_limited(reading: Reading) -> None:
    for number in range(CURSORS_MAX + 10):
        await reading.read(10 * number, bytes_max=1)
    assert reading.memory.used_bytes == 0, "no read left anything over"
    assert len(reading.ahead._waiting) == CURSORS_MAX


async def test_two_readers_at_same_offset_read_everything(reading: Reading) -> None:
    offsets = [0, 0]
    for _ in range(30):
        offsets = list(await asyncio.gather(*[reading.read(offset) for offset in offsets]))
    assert offsets == [60, 60]


async def test_cursor_with_more_bytes_is_kept_at_same_offset(
    reading: Reading,
) -> None:
    offset = await reading_ahead(reading)
    reading.ledger.held_from = END
    first = asyncio.create_task(reading.read(offset))
    await settled()
    assert await reading.read(offset) == offset + 2, "this one did not wait for the piece"
    reading.ledger.gate.set()
    assert await first == offset + 2
    await settled()
    reading.ledger.failure = AssertionError("all of this was read before")
    assert await reading.read(offset + 2) == offset + 4


async def test_cancelled_read_leaves_nothing(reading: Reading) -> None:
    reading.ledger.gate.clear()
    read = asyncio.create_task(reading.read(0))
    await settled()
    read.cancel()
    await asyncio.gather(read, return_exceptions=True)
    assert reading.ledger.cancelled == 1
    assert reading.memory.used_bytes == 0


async def test_cancelled_read_cancels_its_read_ahead(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    read = asyncio.create_task(reading.read(offset))
    await settled()
    read.cancel()
    await asyncio.gather(read, return_exceptions=True)
    await settled()
    assert reading.ledger.cancelled == 1
    assert reading.memory.used_bytes == 0


async def test_close_cancels_reads_and_keeps_nothing(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    assert reading.memory.used_bytes > 0
    await reading.ahead.aclose()
    assert reading.ledger.cancelled == 1
    assert reading.memory.used_bytes == 0
    held = reading.ahead.take(offset)
    reading.ahead.keep(held, END, WANTED)
    assert reading.ahead._waiting == {}


async def test_cursor_held_during_close_is_not_kept(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    read = asyncio.create_task(reading.read(offset))
    await settled()
    await reading.ahead.aclose()
    reading.ledger.gate.set()
    assert await read == offset + 2
    await settled()
    assert reading.memory.used_bytes == 0
    assert reading.ahead._waiting == {}

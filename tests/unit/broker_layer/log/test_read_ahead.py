"""A cursor reads on early for who follows a log, within bounds, and forgets what went wrong."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log import read_ahead
from broker_layer.log.kept_batches import Answer, ReadBatch
from broker_layer.log.read_ahead import (
    AHEAD_BYTES_MAX,
    BATCH_COST_BYTES,
    CURSORS_MAX,
    PIECE_BYTES_MIN,
    PIECES_AHEAD,
    AheadMemory,
    ReadAhead,
)
from metadata.ids import EntryId, LedgerId
from tests.until import until

BATCH_BYTES = PIECE_BYTES_MIN // 4
"""Two of them are asked for at once."""
WANTED = 2 * BATCH_BYTES
END = 1_000


class Ledger:
    """A log of batches of one record each, whose reads can be held back or fail."""

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
            ReadBatch(each, LedgerId(1), EntryId(each), memoryview(bytearray(BATCH_BYTES)))
            for each in range(offset, last)
        ]


class Reading:
    """Reads through a `ReadAhead` as a log does."""

    def __init__(self, memory: AheadMemory) -> None:
        self.ledger = Ledger()
        self.memory = memory
        self.ahead = ReadAhead(self.ledger.read_piece, memory)

    async def read(self, offset: int, *, limit: int = END, bytes_max: int = WANTED) -> int:
        """Read from an offset on; return where the answer ends."""
        cursor = self.ahead.take(offset)
        answer = Answer(limit, bytes_max, at_least_one=True)
        try:
            cursor.kept.give(answer)
            while answer.has_room and cursor.kept.read_offset < limit:
                if not await self.ahead.add_piece(cursor, bytes_max - answer.size):
                    break
                cursor.kept.give(answer)
        except BaseException:
            self.ahead.drop(cursor)
            raise
        self.ahead.keep(cursor, limit, bytes_max)
        end = offset + len(answer.batches)
        assert answer.newest is None or answer.newest.last_offset + 1 == end, "nothing is left out"
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


async def test_one_read_reads_nothing_ahead(reading: Reading) -> None:
    await reading.read(0)
    await reading.read(100)
    await settled()
    assert [offset for offset, _ in reading.ledger.asked] == [0, 100]
    assert reading.memory.used_bytes == 0


async def test_who_follows_finds_what_was_read_ahead(reading: Reading) -> None:
    offset = 0
    for _ in range(20):
        offset = await reading.read(offset)
        await settled()
    assert offset == 40
    asked = list(reading.ledger.asked)
    assert [each for each, _ in asked] == sorted(each for each, _ in asked)
    reading.ledger.failure = AssertionError("all of this was read before")
    assert await reading.read(offset) == offset + 2


async def test_no_more_is_kept_than_a_bounded_number_of_pieces(reading: Reading) -> None:
    offset = await reading.read(await reading.read(0))
    await settled()
    piece = reading.ledger.asked[-1][1]
    piece_cost = piece + piece // BATCH_BYTES * BATCH_COST_BYTES
    assert piece < reading.memory.used_bytes <= PIECES_AHEAD * piece_cost
    assert await reading.read(offset) == offset + 2


async def test_what_is_kept_of_all_logs_is_bounded() -> None:
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


async def test_what_a_read_leaves_over_is_dropped_where_there_is_no_memory_and_read_again() -> None:
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


async def test_small_batches_count_with_what_they_cost_beside_their_bytes() -> None:
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


async def test_nothing_is_left_out_where_others_fill_the_memory_meanwhile(reading: Reading) -> None:
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


async def test_nothing_is_read_ahead_at_or_above_the_limit(reading: Reading) -> None:
    offset = await reading.read(await reading.read(0, limit=4), limit=4)
    await settled()
    assert offset == 4
    assert [each for each, _ in reading.ledger.asked] == [0, 2]


async def reading_ahead(reading: Reading) -> int:
    """Follow the log until something is being read ahead; return where the reader is."""
    offset = await reading.read(await reading.read(0))
    reading.ledger.gate.clear()
    await settled()
    assert len(reading.ledger.asked) == 3
    return offset


async def test_a_read_waits_for_what_is_being_read(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    read = asyncio.create_task(reading.read(offset))
    await settled()
    assert not read.done()
    assert len(reading.ledger.asked) == 3
    reading.ledger.gate.set()
    assert await read == offset + 2


async def test_an_error_ahead_is_met_by_the_read_that_needs_it(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    reading.ledger.failure = TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "no bookie answers")
    reading.ledger.gate.set()
    await settled()
    assert len(reading.ledger.asked) == 3, "it is not tried again"
    with pytest.raises(TopicError):
        await reading.read(offset)
    reading.ledger.failure = None
    assert await reading.read(offset) == offset + 2


async def test_an_error_ahead_is_not_met_by_a_read_that_comes_after_it(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    reading.ledger.failure = TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "no bookie answers")
    reading.ledger.gate.set()
    await settled()
    reading.ledger.failure = None
    assert await reading.read(offset) == offset + 2


async def test_what_waits_too_long_is_dropped(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "KEPT_S", 0.01)
    offset = await reading.read(await reading.read(0))
    await until(lambda: reading.memory.used_bytes == 0)
    assert await reading.read(offset) == offset + 2


async def test_one_log_keeps_a_bounded_number_of_cursors(reading: Reading) -> None:
    for number in range(CURSORS_MAX + 10):
        await reading.read(10 * number, bytes_max=1)
    assert reading.memory.used_bytes == 0, "no read left anything over"
    assert len(reading.ahead._waiting) == CURSORS_MAX


async def test_two_readers_at_one_place_both_read_everything(reading: Reading) -> None:
    offsets = [0, 0]
    for _ in range(30):
        offsets = list(await asyncio.gather(*[reading.read(each) for each in offsets]))
    assert offsets == [60, 60]


async def test_of_two_readers_at_one_place_the_one_with_more_read_ahead_is_kept(
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


async def test_a_read_that_is_given_up_leaves_nothing(reading: Reading) -> None:
    reading.ledger.gate.clear()
    read = asyncio.create_task(reading.read(0))
    await settled()
    read.cancel()
    await asyncio.gather(read, return_exceptions=True)
    assert reading.ledger.cancelled == 1
    assert reading.memory.used_bytes == 0


async def test_a_read_that_is_given_up_ends_what_was_read_ahead_for_it(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    read = asyncio.create_task(reading.read(offset))
    await settled()
    read.cancel()
    await asyncio.gather(read, return_exceptions=True)
    await settled()
    assert reading.ledger.cancelled == 1
    assert reading.memory.used_bytes == 0


async def test_closing_ends_what_is_being_read_and_keeps_nothing(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    assert reading.memory.used_bytes > 0
    await reading.ahead.aclose()
    assert reading.ledger.cancelled == 1
    assert reading.memory.used_bytes == 0
    held = reading.ahead.take(offset)
    reading.ahead.keep(held, END, WANTED)
    assert reading.ahead._waiting == {}


async def test_what_is_held_while_the_log_closes_is_kept_no_more(reading: Reading) -> None:
    offset = await reading_ahead(reading)
    read = asyncio.create_task(reading.read(offset))
    await settled()
    await reading.ahead.aclose()
    reading.ledger.gate.set()
    assert await read == offset + 2
    await settled()
    assert reading.memory.used_bytes == 0
    assert reading.ahead._waiting == {}

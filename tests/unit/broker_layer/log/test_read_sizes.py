"""Tests of reads with a byte limit: bookies are requested only for entries that are returned."""

from collections.abc import AsyncGenerator

import pytest

from broker_layer.kafka.record_batch import read_header
from broker_layer.log import segment_reading
from broker_layer.log.log_services import BUFFERS_RATIO_MAX
from broker_layer.log.segment_reading import has_room_for_another
from ledger_client.batches import EntryBatch
from ledger_client.reading.reader import LedgerReader
from tests.support.broker_layer.log_setting import LogSetting, append, batch, small, values

VALUE_BYTES = 600_000
BATCHES = 24
STATE_ENTRIES = 1
SMALL_BATCHES = 400


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of entries of each request to bookies."""
    counts: list[int] = []
    read = LedgerReader.read_unconfirmed

    def noting(
        reader: LedgerReader,
        first: int,
        last: int,
        *,
        timeout: float | None = None,
        entry_bytes: float | None = None,
    ) -> AsyncGenerator[EntryBatch, None]:
        counts.append(last - first + 1)
        return read(reader, first, last, timeout=timeout, entry_bytes=entry_bytes)

    monkeypatch.setattr(LedgerReader, "read_unconfirmed", noting)
    return counts


@pytest.mark.parametrize("batches_that_fit", [1.07, 3.01, 6.5])
async def test_each_batch_is_requested_once(
    setting: LogSetting, asked: list[int], batches_that_fit: float
) -> None:
    log = await setting.take_over(1, small(segment_bytes=1 << 26), tail_bytes=1)
    data = [batch(b"%02d" % number * (VALUE_BYTES // 2)) for number in range(BATCHES)]
    for each in data:
        await append(log, each)
    bytes_max, count = int(len(data[0]) * batches_that_fit), int(batches_that_fit)
    offset = 0
    for _ in range(2):  # the first pass learns the size of entries
        asked.clear()
        offset = 0
        while offset < BATCHES - count:  # the last are kept in memory
            found = await log.read(offset, bytes_max, read_committed=False, at_least_one=True)
            assert len(found.batches) == count
            offset = read_header(found.batches[-1]).last_offset + 1
    assert offset <= sum(asked) <= BATCHES + STATE_ENTRIES


async def test_small_reads_request_each_batch_once(setting: LogSetting, asked: list[int]) -> None:
    log = await setting.take_over(1, tail_bytes=1)
    for number in range(SMALL_BATCHES):
        await append(log, batch(b"%04d" % number * 1_000))
    for bytes_max in (1, 9_000, 40_000):
        asked.clear()
        assert len(await values(log, bytes_max=bytes_max)) == SMALL_BATCHES
        assert sum(asked) <= 1.5 * SMALL_BATCHES


async def test_batches_of_any_sizes_are_all_read(setting: LogSetting) -> None:
    log = await setting.take_over(1, tail_bytes=1)
    wanted = []
    for number, size in enumerate((1, 9_000, 5, 5, 12_000, 3_000, 1, 1, 1, 20_000, 2) * 3):
        value = bytes([number]) * size
        wanted.append(((await append(log, batch(value))).base_offset, value))
    for bytes_max in (1, 100, 5_000, 12_100, 30_000, 1 << 20):
        assert await values(log, bytes_max=bytes_max) == wanted


async def test_entries_of_one_read_are_limited(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await setting.take_over(1, tail_bytes=1)
    for _ in range(SMALL_BATCHES):
        await append(log, batch(b""))
    monkeypatch.setattr(segment_reading, "ENTRIES_PER_READ_MAX", 50)
    [segment] = await log._reader._segments()
    readers = log._reader._readers
    for _ in range(2):  # the first pass learns the size of entries
        found = await readers.read(segment.ledger_id, 0, SMALL_BATCHES, 1 << 20)
        assert 50 <= len(found) <= 100
    assert len(await values(log)) == SMALL_BATCHES


def test_first_entry_is_read_whatever_its_size() -> None:
    assert has_room_for_another(0, 0, 1)
    assert has_room_for_another(100, 2, 150)
    assert not has_room_for_another(100, 2, 149)


async def test_a_few_batches_do_not_keep_a_large_buffer(setting: LogSetting) -> None:
    log = await setting.take_over(1, tail_bytes=1)
    for _ in range(250):
        await append(log, batch(b"x" * 1_000))
    for bytes_max in (1_100, 20_000, 1 << 20):
        found = await log.read(100, bytes_max, read_committed=False, at_least_one=True)
        size = sum(map(len, found.batches))
        assert size > bytes_max - 1_100 or bytes_max == 1 << 20
        kept = {id(each): memoryview(each).nbytes for each in map(_buffer_of, found.batches)}
        assert sum(kept.values()) <= BUFFERS_RATIO_MAX * size


def _buffer_of(data: bytes | bytearray | memoryview) -> bytes | bytearray:
    return data.obj if isinstance(data, memoryview) else data  # type: ignore[return-value]

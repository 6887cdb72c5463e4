"""Tests of logs whose aborted transactions are too many for the newest state entry."""

from random import Random

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import (
    ControlKind,
    Producer,
    Record,
    build_batch,
    build_control_batch,
    read_header,
)
from broker_layer.log import log_reader
from broker_layer.log.state import partition_state
from broker_layer.log.state.state_entry import (
    AbortedPage,
    EntryPlace,
    OlderAborted,
    StateEntry,
    StateEntryError,
    older_aborted,
)
from broker_layer.log.topic_log import TopicLog
from metadata.ids import EntryId, LedgerId
from tests.support.broker_layer.log_setting import LogSetting, append, small


class Transactions:
    """Transactions of some producers at random, with the aborted ones as readers must get them."""

    def __init__(self, seed: int) -> None:
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset and marker."""
        self._rng = Random(seed)
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    async def write(self, log: TopicLog, steps: int) -> None:
        for _ in range(steps):
            producer_id = self._rng.choice((7, 8, 9))
            if producer_id in self._open and self._rng.random() < 0.6:
                await self.end(log, producer_id)
            else:
                await self._continue(log, producer_id)

    async def end_all(self, log: TopicLog) -> None:
        for producer_id in list(self._open):
            await self.end(log, producer_id)

    async def end(self, log: TopicLog, producer_id: int) -> None:
        kind = self._rng.choice((ControlKind.ABORT, ControlKind.ABORT, ControlKind.COMMIT))
        marker = build_control_batch(kind, producer_id, 0, 0, 1_000)
        at = (await append(log, marker, coordinator_epoch=0)).base_offset
        first = self._open.pop(producer_id)
        if kind is ControlKind.ABORT:
            self.aborted.append((producer_id, first, at))

    async def _continue(self, log: TopicLog, producer_id: int) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        producer = Producer(producer_id, 0, sequence)
        records = [Record(0, 1_000, None, b"x" * 40)]
        at = await append(log, build_batch(records, producer=producer, is_transactional=True))
        self._open.setdefault(producer_id, at.base_offset)


async def check(log: TopicLog, made: Transactions) -> None:
    """Check each read against all aborted transactions; a reader may get more than it needs."""
    for offset in range(log.log_start_offset, log.last_stable_offset):
        for bytes_max in (1, 500):
            read = await log.read(offset, bytes_max, read_committed=True, at_least_one=True)
            end = read_header(read.batches[-1]).last_offset + 1
            needed = [
                (producer_id, first)
                for producer_id, first, marker in made.aborted
                if first < end and marker >= offset
            ]
            assert [each for each in read.aborted if each in needed] == needed
            known = [(producer_id, first) for producer_id, first, _ in made.aborted]
            assert all(each in known for each in read.aborted)


async def test_a_limited_number_of_places_is_kept(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_state, "ABORTED_MAX", 4)
    monkeypatch.setattr(log_reader, "KNOWN_PAGES_MAX", 2)
    made = Transactions(1)
    log = await setting.take_over(1, small(segment_bytes=3_000), tail_bytes=500)
    await made.write(log, 60)
    await made.end_all(log)
    await check(log, made)
    assert len(log._reader._known_pages) == 2


@pytest.mark.parametrize("seed", range(3))
async def test_readers_get_aborted_transactions_of_older_state_entries(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(partition_state, "ABORTED_MAX", 4)
    config, made = small(segment_bytes=3_000), Transactions(seed)
    log = await setting.take_over(1, config, tail_bytes=500)
    await made.write(log, 100)
    assert log._appender.state.older is not None
    await check(log, made)
    await log.aclose()
    log = await setting.take_over(2, config, tail_bytes=500)
    await made.write(log, 20)
    await made.end_all(log)
    await check(log, made)


async def test_reads_after_the_log_was_trimmed(
    setting: LogSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_state, "ABORTED_MAX", 4)
    made = Transactions(1)
    log = await setting.take_over(1, small(segment_bytes=2_000), tail_bytes=500)
    await made.write(log, 120)
    await made.end_all(log)
    for _ in range(4):
        await log.delete_records(log.log_start_offset + log.high_watermark // 5)
        await log.enforce_retention(setting.now_ms)
        await check(log, made)
    with pytest.raises(TopicError) as refusal:
        await log.read(0, 1, read_committed=True, at_least_one=True)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    await log.delete_records(-1)
    assert log._appender.state.older is None


async def test_a_state_entry_that_leads_back_to_itself_ends_the_search(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    await append(log, build_batch([Record(0, 1_000, None, b"x")]))
    older = OlderAborted(EntryPlace(LedgerId(7), EntryId(3)), 9)

    async def page_of(*_: object) -> AbortedPage:
        return AbortedPage((), older)

    with pytest.raises(StateEntryError, match="older transactions"):
        await older_aborted(older, 0, 9, page_of)
    assert log._roller.ledger is not None
    writer = log._roller.ledger.writer
    place = EntryPlace(writer.id, writer.admission.next_entry_id)
    writer.append_followed(StateEntry(1, previous=place).encode())
    await append(log, build_batch([Record(0, 1_000, None, b"y")]))
    with pytest.raises(StateEntryError, match="as the earlier one"):
        await log._reader._state_entry(place)

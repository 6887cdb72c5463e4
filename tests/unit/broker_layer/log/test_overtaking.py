"""Tests of batches that come behind a refused one of their producer."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Producer
from broker_layer.log.topic_log import TopicLog
from ledger_client import Quorum
from metadata.store.memory import MemoryMetadataStore
from tests.support.broker_layer.log_setting import CONFIG, LogSetting, append, batch, values
from tests.until import until

if TYPE_CHECKING:
    from broker_layer.log.pending_batches import Appended

FIRST, SECOND = Producer(7, 0, 0), Producer(7, 0, 1)


async def code_of(answer: "asyncio.Future[Appended]") -> ErrorCode:
    with pytest.raises(TopicError) as refusal:
        await answer
    return refusal.value.code


async def test_batch_does_not_overtake_one_that_was_refused_after_a_wait(
    setting: LogSetting,
) -> None:
    await append(await setting.take_over(1), batch(b"of another producer"))
    log = await setting.take_over(2)
    for bookie in setting.cluster.bookies[1:]:
        await bookie.unregister()
    first = append(log, batch(b"first", producer=FIRST))  # it waits for a ledger
    assert await code_of(first) is ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        await setting.cluster.add_bookie()
    while True:
        try:
            await append(log, batch(b"of another producer"))
            break
        except TopicError:
            await asyncio.sleep(0.05)
    with pytest.raises(TopicError) as refusal:
        append(log, batch(b"second", producer=SECOND))
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    await append(log, batch(b"first", producer=FIRST))
    await append(log, batch(b"second", producer=SECOND))
    assert [value for _, value in await values(log)][-2:] == [b"first", b"second"]


async def test_repeated_batch_is_known_behind_many_other_producers(setting: LogSetting) -> None:
    log = await setting.take_over(1)
    await append(log, batch(b"first", producer=FIRST))
    for start in range(100, 10_200, 100):
        others = [batch(b"x", producer=Producer(start + n, 0, 0)) for n in range(100)]
        await asyncio.gather(*[append(log, other) for other in others])
    assert (await append(log, batch(b"first", producer=FIRST))).base_offset == 0


def refusal_of(log: TopicLog, sequence: int) -> ErrorCode | None:
    try:
        append(log, batch(b"%d" % sequence, producer=Producer(7, 0, sequence)))
    except TopicError as error:
        return error.code
    return None


async def test_replicas_are_checked_before_sequences(setting: LogSetting) -> None:
    """A client that gets OUT_OF_ORDER_SEQUENCE_NUMBER begins a new epoch: then a batch whose answer
    it did not get is stored twice.
    """
    log = await setting.take_over(1, replace(CONFIG, quorum=Quorum.in_sync(3, 2)))
    assert (await append(log, batch(b"0", producer=FIRST))).base_offset == 0
    for bookie in setting.cluster.bookies[1:]:
        await bookie.unregister()
    short = ErrorCode.NOT_ENOUGH_REPLICAS
    await until(lambda: len(log.in_sync) < 2)
    assert [refusal_of(log, sequence) for sequence in (0, 1, 2, 1)] == [short] * 4
    for bookie in setting.cluster.bookies[1:]:
        await bookie.register(MemoryMetadataStore(setting.cluster.server))
    await until(lambda: len(log.in_sync) >= 2)
    assert refusal_of(log, 2) is short  # 1 comes first
    assert [refusal_of(log, sequence) for sequence in (0, 1, 2)] == [None] * 3
    await append(log, batch(b"of another producer"))
    assert [value for _, value in await values(log)] == [b"0", b"1", b"2", b"of another producer"]


async def test_sequence_is_awaited_that_an_earlier_leader_may_have_refused(
    setting: LogSetting,
) -> None:
    await append(await setting.take_over(1), batch(b"0", producer=FIRST))
    log = await setting.take_over(2)
    await append(log, batch(b"of another producer"))
    assert refusal_of(log, 2) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert [refusal_of(log, sequence) for sequence in (1, 2)] == [None] * 2
    assert refusal_of(log, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

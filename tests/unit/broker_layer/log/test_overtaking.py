"""Tests of batches of an unknown producer that come behind a refused one."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Producer
from tests.support.broker_layer.log_setting import LogSetting, append, batch, values

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
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
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

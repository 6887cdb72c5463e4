"""Tests of Produces that wait for the confirmation of a transaction, over real logs."""

import asyncio
from typing import cast

import pytest
from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import ControlKind, Producer, build_control_batch
from broker_layer.log.topic_log import TopicLog
from broker_layer.server.produce_verification import VERIFICATIONS_AT_ONCE
from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification import Confirmation
from metadata.topics.partition_store import PartitionKey
from tests.support.broker_layer.log_setting import CONFIG, KEY, LogSetting, append
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import batch, serving
from tests.until import until

ASKED = TopicPartition("orders", 0)
"""The partition whose confirmation a test delays."""
OTHER = TopicPartition("orders", 1)


class SlowlyConfirmed(MemoryTopics):
    """Real logs; the coordinator confirms each transaction when the test allows it."""

    @override
    async def verify(
        self, claim: Claim, partition: TopicPartition, *, knows_abortable: bool = False
    ) -> Confirmation:
        confirmation = self.guards.begin(partition, claim.producer_id)
        self.verified.append(partition)
        await self.may_verify.wait()
        return confirmation


async def opened(setting: LogSetting, partition: int) -> TopicLog:
    key = PartitionKey(KEY.topic_id, partition)
    log = await TopicLog.take_over(setting.services(), "orders", key, 1, CONFIG)
    setting.logs.append(log)
    return log


@pytest.mark.parametrize("was_opening", [False, True])
async def test_batch_of_another_partition_is_judged_when_it_is_appended(
    setting: LogSetting, *, was_opening: bool
) -> None:
    logs = {place: await opened(setting, place.partition) for place in (ASKED, OTHER)}
    topics = SlowlyConfirmed(cast("dict[tuple[str, int], MemoryLog]", dict(logs)))
    other = logs[OTHER]
    first = batch(b"first", producer=Producer(7, 0, 0), is_transactional=True)
    await append(other, bytearray(first))
    abort = build_control_batch(ControlKind.ABORT, 7, 0, 5, 1_000)
    if was_opening:  # its log is not known when the Produce asks what must be confirmed
        await append(other, abort, coordinator_epoch=5)
        del topics.logs[OTHER]
        topics.leaders[OTHER] = (1, 1)
    late = batch(b"late", producer=Producer(7, 0, 1), is_transactional=True)
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_produce({"orders": {0: first, 1: late}}, transactional_id="t")
        await until(lambda: topics.verified == [ASKED])
        if was_opening:
            topics.logs[OTHER] = cast("MemoryLog", other)
        else:
            topics.guards.marker_written(OTHER, 7)
            await append(other, abort, coordinator_epoch=5)
        topics.may_verify.set()
        rows = (await client.produced()).responses[0].partition_responses
        assert [row.error_code for row in rows] == [0, ErrorCode.NOT_ENOUGH_REPLICAS]
        assert logs[ASKED].has_open_transaction(7, 0)
        assert not other.has_open_transaction(7, 0)
        assert other.last_stable_offset == other.high_watermark == 2


async def test_confirmation_is_held_until_a_deferred_batch_is_admitted(
    setting: LogSetting,
) -> None:
    log = await opened(setting, 0)  # it has no ledger yet, so the batch is deferred
    topics = SlowlyConfirmed({ASKED: cast("MemoryLog", log)})
    topics.may_verify.set()
    async with serving(topics) as broker:
        client = await broker.connect()
        data = batch(b"first", producer=Producer(7, 0, 0), is_transactional=True)
        client.send_produce({"orders": {0: data}}, transactional_id="t")
        rows = (await client.produced()).responses[0].partition_responses
        assert [row.error_code for row in rows] == [0]
        await asyncio.sleep(0)
        assert not topics.guards._live


class UndecidedOnce(SlowlyConfirmed):
    """The coordinator does not answer the first question."""

    @override
    async def verify(
        self, claim: Claim, partition: TopicPartition, *, knows_abortable: bool = False
    ) -> Confirmation:
        if not self.verified:
            self.verified.append(partition)
            raise TopicError(ErrorCode.NOT_ENOUGH_REPLICAS, "the coordinator did not answer")
        return await super().verify(claim, partition, knows_abortable=knows_abortable)


async def test_second_batch_does_not_overtake_an_undecided_first_one(setting: LogSetting) -> None:
    log = await opened(setting, 0)
    await append(log, bytearray(batch(b"of another producer")))
    topics = UndecidedOnce({ASKED: cast("MemoryLog", log)})
    topics.may_verify.set()
    async with serving(topics) as broker:
        client = await broker.connect()
        codes = []
        first, second = [
            batch(b"x", producer=Producer(7, 0, sequence), is_transactional=True)
            for sequence in (0, 1)
        ]
        for data in (first, second, first, second):
            client.send_produce({"orders": {0: data}}, transactional_id="t")
            codes.append((await client.produced()).responses[0].partition_responses[0].error_code)
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS, 0, 0]


async def test_a_large_produce_asks_its_coordinator_some_questions_at_a_time() -> None:
    count = 2 * VERIFICATIONS_AT_ONCE + 1
    topics = SlowlyConfirmed({("orders", number): MemoryLog() for number in range(count)})
    async with serving(topics) as broker:
        client = await broker.connect()
        data = batch(b"x", producer=Producer(7, 0, 0), is_transactional=True)
        client.send_produce({"orders": dict.fromkeys(range(count), data)}, transactional_id="t")
        await until(lambda: len(topics.verified) >= VERIFICATIONS_AT_ONCE)
        await asyncio.sleep(0)
        assert len(topics.verified) == VERIFICATIONS_AT_ONCE
        topics.may_verify.set()
        [topic] = (await client.produced()).responses
        assert [row.error_code for row in topic.partition_responses] == [0] * count
        assert len(topics.verified) == count
        assert not topics.guards._live


async def test_a_coordinator_that_gives_no_decision_is_not_asked_for_the_others() -> None:
    count = VERIFICATIONS_AT_ONCE + 1
    topics = UndecidedOnce({("orders", number): MemoryLog() for number in range(count)})
    topics.may_verify.set()
    async with serving(topics) as broker:
        client = await broker.connect()
        data = batch(b"x", producer=Producer(7, 0, 0), is_transactional=True)
        client.send_produce({"orders": dict.fromkeys(range(count), data)}, transactional_id="t")
        [topic] = (await client.produced()).responses
        codes = [row.error_code for row in topic.partition_responses]
        assert codes[0] == codes[-1] == ErrorCode.NOT_ENOUGH_REPLICAS
        assert len(topics.verified) <= VERIFICATIONS_AT_ONCE
        assert not topics.guards._live

"""Verification, by a leader, of transactions on its partitions."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification import Confirmation
from tests.support.broker_layer.model_cluster import STATE_PARTITIONS, Broker, Cluster, Faults

A0 = TopicPartition("a", 0)


class Setting:
    """Two brokers; the transactional id `t` has an open transaction on partition 0."""

    def __init__(self) -> None:
        self.cluster = Cluster(Random(5), 2, 0.001)
        for number in range(2):
            self.cluster.add_partition("a", number)
        self.claim = Claim("", -1, -1)

    async def start(self) -> None:
        for broker in self.cluster.brokers:
            broker.coordinator.start()
        for number in range(STATE_PARTITIONS):
            await self.cluster.move_state(number, is_graceful=True)
        coordinator = self.coordinating().coordinator
        identity = await coordinator.init_producer_id("t", 5000, None)
        self.claim = Claim("t", *identity)
        await coordinator.add_partitions(self.claim, [A0])

    def coordinating(self) -> Broker:
        for broker in self.cluster.brokers:
            try:
                broker.coordinator.verify(Claim("t", 0, 0), [])
            except TopicError:
                continue
            return broker
        raise AssertionError("no broker coordinates")

    def other(self) -> Broker:
        (other,) = [broker for broker in self.cluster.brokers if broker is not self.coordinating()]
        return other

    async def verify(
        self, broker: Broker, claim: Claim, partition: int = 0, *, knows_abortable: bool = False
    ) -> Confirmation:
        return await broker.verifier.verify(
            claim, TopicPartition("a", partition), knows_abortable=knows_abortable
        )


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    await setting.start()
    yield setting
    await setting.cluster.aclose()


async def test_an_open_transaction_is_confirmed_locally_and_remotely(setting: Setting) -> None:
    for broker in (setting.coordinating(), setting.other()):
        with await setting.verify(broker, setting.claim) as confirmation:
            assert confirmation.holds()
        assert not broker.guards._live


async def test_refusals_have_codes_for_producers(setting: Setting) -> None:
    claim = setting.claim
    await_codes = [
        (claim, 1, False, ErrorCode.INVALID_TXN_STATE),
        (claim, 1, True, ErrorCode.TRANSACTION_ABORTABLE),
        (claim._replace(epoch=9), 0, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (claim._replace(producer_id=9), 0, False, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (claim._replace(transactional_id=""), 0, False, ErrorCode.INVALID_REQUEST),
    ]
    for broker in (setting.coordinating(), setting.other()):
        for wrong, partition, knows_abortable, code in await_codes:
            with pytest.raises(TopicError) as caught:
                await setting.verify(broker, wrong, partition, knows_abortable=knows_abortable)
            assert caught.value.code is code
        assert not broker.guards._live


async def test_partitions_of_a_transaction_are_verified_separately(setting: Setting) -> None:
    a1 = TopicPartition("a", 1)
    for broker in (setting.coordinating(), setting.other()):
        refusing = asyncio.ensure_future(broker.verifier.confirm(setting.claim, a1))
        with await broker.verifier.confirm(setting.claim, A0) as confirmation:
            with pytest.raises(TopicError) as refused:
                await refusing
            assert refused.value.code is ErrorCode.INVALID_TXN_STATE
            assert confirmation.holds()
        assert not broker.guards._live


async def check_offsets(broker: Broker, claim: Claim, partition: TopicPartition) -> None:
    identity = claim.producer_id, claim.epoch, claim.transactional_id
    await broker.verifier.check_offsets(*identity, *partition)


async def test_refusals_have_codes_for_group_clients(setting: Setting) -> None:
    broker, a1 = setting.other(), TopicPartition("a", 1)
    await check_offsets(broker, setting.claim, A0)
    for claim, partition, faults, code in [
        (setting.claim, a1, Faults(), ErrorCode.INVALID_TXN_STATE),
        (setting.claim._replace(epoch=9), A0, Faults(), ErrorCode.INVALID_PRODUCER_EPOCH),
        (setting.claim, A0, Faults(lost=1.0), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]:
        setting.cluster.faults = faults
        with pytest.raises(TopicError) as caught:
            await check_offsets(broker, claim, partition)
        assert caught.value.code is code
    assert not broker.guards._live


async def test_a_group_stores_no_offsets_of_an_ended_transaction(
    setting: Setting,
) -> None:
    broker = setting.other()
    asking = asyncio.ensure_future(check_offsets(broker, setting.claim, A0))
    await asyncio.sleep(0)
    broker.guards.marker_written(A0, setting.claim.producer_id)
    with pytest.raises(TopicError) as caught:
        await asking
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


async def codes_at(setting: Setting, broker: Broker) -> tuple[ErrorCode, ErrorCode]:
    """Return the code for a producer, and the untranslated code."""
    with pytest.raises(TopicError) as for_producers:
        await setting.verify(broker, setting.claim)
    with pytest.raises(TopicError) as as_it_is:
        await broker.verifier.confirm(setting.claim, A0)
    assert not broker.guards._live
    return for_producers.value.code, as_it_is.value.code


async def test_unknown_outcomes_are_retried(setting: Setting) -> None:
    again = ErrorCode.NOT_ENOUGH_REPLICAS
    coordinating, other = setting.coordinating(), setting.other()
    setting.cluster.faults = Faults(lost=1.0)
    assert await codes_at(setting, other) == (again, ErrorCode.NETWORK_EXCEPTION)
    setting.cluster.faults = Faults(answer_lost=1.0)
    assert await codes_at(setting, other) == (again, ErrorCode.NETWORK_EXCEPTION)
    setting.cluster.faults = Faults()
    setting.cluster.partitions[A0].leader = -1  # the marker waits
    await coordinating.coordinator.end(setting.claim, committed=True)
    for broker in (coordinating, other):
        assert await codes_at(setting, broker) == (again, ErrorCode.CONCURRENT_TRANSACTIONS)
    for number in range(STATE_PARTITIONS):
        await coordinating.coordinator.resign(number)
    for broker in (coordinating, other):
        assert await codes_at(setting, broker) == (again, ErrorCode.NOT_COORDINATOR)
    setting.cluster.state_leaders = [-1] * STATE_PARTITIONS
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await codes_at(setting, other) == (again, unavailable)

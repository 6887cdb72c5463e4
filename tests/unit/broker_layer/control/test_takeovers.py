"""Brokers that die, leave, return and take over, with real stores and bookies in memory."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from broker_layer.control.assigned_partition import Stage
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from ledger_client.info import LedgerInfo
from metadata.errors import NodeNotFoundError, TopicNotFoundError
from metadata.paths import BROKERS
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicChange, TopicStore
from tests.support.broker_layer.control_setting import (
    CONFIG,
    Broker,
    Setting,
    registration,
    until_lists_are_gone,
)
from tests.support.broker_layer.log_setting import append, batch, values
from tests.until import WAIT_S, until


async def test_a_new_topic_is_led_and_written(setting: Setting) -> None:
    broker = await setting.broker(1)
    record = await broker.create("orders", 2)

    log = await broker.log("orders")
    await append(log, batch(b"one", b"two"))

    assert [partition.leader for partition in record.partitions] == [1, 1]
    assert await values(log) == [(0, b"one"), (1, b"two")]
    assert broker.manager.led_count == 2 or not broker.leads("orders", 1)


async def test_partitions_are_spread_and_found_at_their_leaders(setting: Setting) -> None:
    one, two = await setting.broker(1), await setting.broker(2)
    await until(lambda: len(one.view.brokers) == 2)
    await one.create("orders", 4)
    await until(lambda: two.leaders("orders") == [1, 2, 1, 2])

    await two.log("orders", 1)

    with pytest.raises(TopicError) as caught:
        two.manager.log_of("orders", 0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "led by broker 1" in caught.value.text


async def test_missing_partitions_are_unknown(setting: Setting) -> None:
    broker = await setting.broker(1)
    await broker.create("orders")

    for topic, partition in (("orders", 1), ("orders", -1), ("nothing", 0)):
        with pytest.raises(TopicError) as caught:
            broker.manager.log_of(topic, partition)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_dead_brokers_partitions_are_taken_over_with_their_records(
    setting: Setting,
) -> None:
    one, two = await setting.broker(1), await setting.broker(2)
    await until(lambda: len(one.view.brokers) == 2)
    await one.create("orders", 2)
    await append(await one.log("orders", 0), batch(b"one"))

    await setting.kill(one)
    log = await two.log("orders", 0)

    assert two.leaders("orders") == [2, 2]
    assert log.leader_epoch > 0
    assert await values(log) == [(0, b"one")]
    await append(log, batch(b"two"))
    assert await values(log) == [(0, b"one"), (1, b"two")]


async def test_partitions_go_back_to_their_preferred_broker(setting: Setting) -> None:
    one, two = await setting.broker(1), await setting.broker(2)
    await until(lambda: len(one.view.brokers) == 2)
    await one.create("orders", 2)
    await setting.kill(one)
    await append(await two.log("orders", 0), batch(b"one"))

    again = await setting.broker(1)
    log = await again.log("orders", 0)

    assert await values(log) == [(0, b"one")]
    await until(lambda: two.leaders("orders") == [1, 2])
    assert two.leads("orders", 1)


async def test_a_broker_that_restarts_quickly_gets_new_epochs(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    await append(await one.log("orders"), batch(b"one"))
    epoch = one.epochs("orders")[0]
    await setting.kill(one)

    again = await setting.broker(1)
    log = await again.log("orders")

    assert log.leader_epoch > epoch
    assert await values(log) == [(0, b"one")]


async def test_a_leaving_broker_hands_over_its_partitions(setting: Setting) -> None:
    one, two = await setting.broker(1), await setting.broker(2)
    await until(lambda: len(one.view.brokers) == 2)
    await one.create("orders", 2)
    await append(await one.log("orders", 0), batch(b"one"))

    one.registrar.update(registration(1, is_leaving=True))

    assert await one.manager.wait_until_empty(WAIT_S)
    assert await values(await two.log("orders", 0)) == [(0, b"one")]
    assert two.leaders("orders") == [2, 2]


async def test_the_last_broker_times_out_when_it_leaves(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    await one.log("orders")

    one.registrar.update(registration(1, is_leaving=True))

    assert not await one.manager.wait_until_empty(0.05)
    await one.log("orders")


async def test_another_broker_becomes_the_controller(setting: Setting) -> None:
    one = await setting.broker(1)
    await until(lambda: one.controller.is_active)
    two = await setting.broker(2)
    assert two.view.controller_id == 1

    await setting.kill(one)

    await until(lambda: two.controller.is_active)
    assert two.view.controller_id == 2


async def test_a_log_that_failed_is_taken_over_by_its_own_leader(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    log = await one.log("orders")
    await append(log, batch(b"one"))

    key = PartitionKey(one.view.topics["orders"].topic_id, 0)
    record, _ = await one.partitions.get(key)
    await setting.cluster.client().recover_ledger(record.segments[-1].ledger_id)
    with pytest.raises(TopicError):
        await append(log, batch(b"lost"))
    with pytest.raises(TopicError):
        one.manager.log_of("orders", 0)
    await until(lambda: one.leads("orders"))

    reopened = one.manager.log_of("orders", 0)
    assert reopened.leader_epoch == log.leader_epoch + 1
    assert await values(reopened) == [(0, b"one")]


async def test_a_partition_shows_why_it_has_no_leader_until_it_gets_one(
    setting: Setting,
) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    await append(await one.log("orders"), batch(b"one"))
    await setting.kill(one)
    bookie = setting.cluster.bookies[0]
    await bookie.stop()

    two = await setting.broker(2)

    def waits() -> bool:
        status = two.manager.status_of("orders", 0)
        return status is not None and status.stage is Stage.WAITS and bool(status.reason)

    await until(waits)
    assert two.manager.leaderless_count == 1
    with pytest.raises(TopicError, match="has no leader yet"):
        two.manager.log_of("orders", 0)
    await bookie.unregister()
    await bookie.start()
    await bookie.register(setting.cluster._store)
    assert await values(await two.log("orders")) == [(0, b"one")]
    status = two.manager.status_of("orders", 0)
    assert status is not None
    assert status.stage is Stage.LEADS


async def test_a_lapsed_session_serves_nothing_until_all_topics_are_read_again(
    setting: Setting,
) -> None:
    one, two = await setting.broker(1), await setting.broker(2)
    await until(lambda: len(one.view.brokers) == 2)
    await one.create("orders")
    await one.log("orders")

    one.store.suspend()
    await until(lambda: one.view.lease.has_lapsed)
    with pytest.raises(TopicError) as caught:
        one.manager.log_of("orders", 0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await two.log("orders")

    one.store.resume()
    await until(lambda: not one.view.lease.has_lapsed)
    await until(lambda: one.leads("orders") != two.leads("orders"))


async def test_a_deleted_topic_leaves_no_ledger_and_its_name_restarts_with_higher_epochs(
    setting: Setting,
) -> None:
    one = await setting.broker(1)
    record = await one.create("orders", 2)
    await append(await one.log("orders"), batch(b"one"))
    key = PartitionKey(record.topic_id, 0)
    found, _ = await one.partitions.get(key)
    ledger_id = found.segments[0].ledger_id

    await one.changes.delete("orders")

    assert "orders" not in one.view.topics
    again = await one.create("orders")
    assert again.partitions[0].leader_epoch > record.partitions[0].leader_epoch
    await until_lists_are_gone(one, record)
    with pytest.raises(NodeNotFoundError):
        await one.partitions.get(key)
    assert ledger_id not in [info.id async for info in one.client.list_ledgers()]
    log = await one.log("orders")
    assert log.high_watermark == 0


async def test_another_controller_continues_erasing(setting: Setting) -> None:
    one = await setting.broker(1)
    record = await one.create("orders", 3)
    for partition in range(3):
        await append(await one.log("orders", partition), batch(b"one"))
    await setting.kill(one)
    store = MemoryMetadataStore(setting.cluster.server)
    await TopicStore(store, Random(77)).change("orders", lambda record: record.with_deletion())

    two = await setting.broker(2)

    await until(lambda: not two.view.deleting)
    with pytest.raises(TopicNotFoundError):
        await two.topics.get("orders")
    await until_lists_are_gone(two, record)
    assert [info.id async for info in two.client.list_ledgers()] == []


async def test_changed_settings_reach_the_log(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    log = await one.log("orders")

    await one.changes.set_configs("orders", lambda stored: {**stored, "retention.ms": "5000"})

    await until(lambda: log.config.retention_ms == 5000)


async def test_settings_that_change_during_a_takeover_reach_the_log(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await setting.broker(1)
    await one.create("orders")
    await append(await one.log("orders"), batch(b"one"))
    two = await setting.broker(2)
    recover, is_taken, may_continue = two.client.recover_ledger, asyncio.Event(), asyncio.Event()

    async def slow(ledger_id: int) -> LedgerInfo:
        is_taken.set()
        await may_continue.wait()
        return await recover(ledger_id)

    monkeypatch.setattr(two.client, "recover_ledger", slow)
    await setting.kill(one)
    await is_taken.wait()
    await two.changes.set_configs("orders", lambda stored: {**stored, "retention.ms": "5000"})
    may_continue.set()
    assert (await two.log("orders")).config.retention_ms == 5000


async def test_a_new_broker_gets_a_share(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders", 8)
    two = await setting.broker(2)

    await until(lambda: one.leaders("orders").count(2) == 4)
    await until(lambda: two.manager.led_count == 4)


async def test_a_controller_waits_for_other_brokers_at_a_cluster_start(setting: Setting) -> None:
    patient = replace(CONFIG, assembly_s=5.0, rebalance_interval_s=0.0)
    one = await setting.broker(1)
    await one.create("orders", 4)
    await one.log("orders", 0)
    await setting.kill(one)

    two = await setting.broker(2, patient)
    again = await setting.broker(1, patient)

    await again.log("orders", 0)
    assert two.leaders("orders") == [1, 1, 1, 1]


async def test_a_controller_that_is_elected_again_reads_first_which_brokers_are_up(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it takes partitions away from a broker that joined while its session was away."""
    config = replace(CONFIG, rebalance_interval_s=0.0)
    one = await setting.broker(1, config)
    await one.create("orders")
    await one.log("orders")
    one.store.suspend()
    two = await setting.broker(2, config)
    await until(lambda: two.leads("orders"))
    epochs = two.epochs("orders")
    await two.election.aclose()

    read, may_read = one.store.children, asyncio.Event()

    async def slow(path: str, *, fresh: bool = False, agreed: bool = False) -> list[str]:
        if path == BROKERS:
            await may_read.wait()
        return await read(path, fresh=fresh, agreed=agreed)

    monkeypatch.setattr(one.store, "children", slow)
    one.store.resume()
    await until(lambda: one.controller.is_active)
    await asyncio.sleep(0.05)  # it may act too early
    may_read.set()
    await until(lambda: one.controller._since_s is not None)
    assert sorted(one.view.brokers) == [1, 2]
    assert (two.leaders("orders"), two.epochs("orders")) == ([2], epochs)


async def test_a_broker_that_joins_while_leaders_are_stored_stops_no_step(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = await setting.broker(1)
    await one.create("orders", 4)
    two = await setting.broker(2)
    await until(lambda: two.manager.led_count == 2)
    change_many = one.topics.change_many
    joined: list[Broker] = []

    async def slow(changes: Mapping[str, TopicChange]) -> dict[str, TopicRecord]:
        if not joined:
            joined.append(await setting.broker(3))
            await until(lambda: 3 in one.view.brokers)
            one.controller._rebalance_due_s = 0.0
        return await change_many(changes)

    monkeypatch.setattr(one.topics, "change_many", slow)
    await setting.kill(two)
    await until(lambda: bool(joined) and 2 not in one.leaders("orders"))
    await until(lambda: joined[0].manager.led_count > 0)
    assert "leaders were not changed" not in caplog.text


async def test_a_controller_whose_term_ends_while_it_stores_leaders_stores_no_more(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it moves partitions by an old list of brokers."""
    one, two, three = [await setting.broker(number) for number in (1, 2, 3)]
    await until(lambda: len(one.view.brokers) == 3)
    await one.create("orders", 3)
    await until(lambda: three.leads("orders", 2))
    change_many, is_active = one.topics.change_many, list[bool]()

    async def slow(changes: Mapping[str, TopicChange]) -> dict[str, TopicRecord]:
        is_active.append(one.controller.is_active)
        if len(is_active) == 1:
            await one.create("lent", 2)
            lent = partial(TopicRecord.with_preferred, preferred={0: 3, 1: 3})
            one.view.learn(await one.topics.change("lent", lent))
            one.controller._rebalance_due_s = 0.0
            one.store.expire()
        return await change_many(changes)

    monkeypatch.setattr(one.topics, "change_many", slow)
    await setting.kill(two)
    await until(lambda: 2 not in one.leaders("orders") and one.leaders("lent") == [3, 3])
    assert all(is_active)

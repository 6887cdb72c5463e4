"""Ledgers that lack copies: found while a bookie is away or repair has jobs, and shown."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from broker_layer.control.led_partitions import LedPartitions
from broker_layer.control.ledger_health import NAMED_BY_REPAIR, REREAD_S
from broker_layer.control.topic_changes import NewTopic
from broker_layer.log.topic_log import TopicLog
from metadata.ids import BookieId, LedgerId, UpdateToken
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import MOVING_URGENCY, Job, JobName
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.topics.replica_numbers import MISSING_REPLICA
from tests.support.broker_layer.asking import Admin
from tests.support.broker_layer.control_setting import Broker, Setting
from tests.support.broker_layer.log_setting import append, batch
from tests.until import WAIT_S, until

SETTINGS = {"replication.mode": "quorum", "ack.quorum": "1", "segment.bytes": "16384"}


async def ended(broker: Broker, count: int = 1) -> TopicLog:
    """Return a log with some ended ledgers, and an open one."""
    wanted = NewTopic("orders", partitions=1, replication_factor=2, configs=SETTINGS)
    await broker.changes.store(broker.changes.plan(wanted), WAIT_S)
    log = await broker.log("orders")
    while len(log.ended_ledgers) < count:
        await append(log, batch(b"x" * 10_000))
        await asyncio.sleep(0.01)
    return log


def bookie_ids(setting: Setting) -> list[BookieId]:
    return [BookieId(bookie.id) for bookie in setting.cluster.bookies]


async def look(broker: Broker) -> None:
    """Look, with reads, and look at what they returned."""
    await broker.health.look()
    await broker.health.look()


async def ledger_of(broker: Broker, ledger_id: LedgerId) -> tuple[BookieId, ...]:
    ledger, _ = await LedgerStore(broker.store, Random(1), lambda: 1).get(ledger_id)
    return ledger.last_fragment.ensemble


async def repair(
    setting: Setting, broker: Broker, ledger_id: LedgerId, gone: BookieId
) -> tuple[BookieId, ...]:
    """Put a spare in the place of a bookie in all fragments; return the last one's bookies."""
    ledgers = LedgerStore(broker.store, Random(1), lambda: 1)
    ledger, version = await ledgers.get(ledger_id)
    ensemble = ledger.last_fragment.ensemble
    spare = next(bookie for bookie in bookie_ids(setting) if bookie not in ensemble)
    members = tuple(spare if bookie == gone else bookie for bookie in ensemble)
    fragments = tuple(replace(one, ensemble=members) for one in ledger.fragments)
    repaired = replace(ledger, fragments=fragments, update_token=UpdateToken(b"r" * 16))
    await ledgers.compare_and_set(repaired, version)
    return members


async def publish(broker: Broker, ledger_id: LedgerId, urgency: int) -> Job:
    job = Job(JobName(urgency, 500, ledger_id), ("a test",), 1)
    await JobStore(broker.store, Random(2)).publish(job)
    await until(lambda: job.name.text in broker.repair_jobs.names)
    return job


@pytest.fixture
async def broker(setting: Setting) -> Broker:
    for _ in range(3):
        await setting.cluster.add_bookie()
    return await setting.broker(1)


async def test_nothing_is_read_while_all_is_well(broker: Broker) -> None:
    log = await ended(broker)
    await broker.health.look()
    assert not broker.health._known
    assert not broker.health.replicas_of(log).is_short


async def test_an_ended_ledger_that_names_a_bookie_that_is_away_is_short(
    setting: Setting, broker: Broker
) -> None:
    log = await ended(broker)
    (first, *_) = log.ended_ledgers
    members = await ledger_of(broker, first)
    await setting.cluster.bookie(members[0]).unregister()
    await until(lambda: broker.states.any_short)
    await look(broker)

    stored = broker.health.replicas_of(log)
    found = {shortage.ledger_id: shortage for shortage in stored.shortages}
    assert found[first].bookies == (members[0],)
    assert found[first].entry_count > 0
    assert found[first].size_bytes > 0
    assert found[first].why == f"{members[0]} is away"
    assert stored.is_short
    assert members[0] in stored.replicas
    assert members[0] not in stored.in_sync
    (row,) = LedPartitions(broker.manager, broker.health, lambda: 0.0).rows()
    assert (row.is_short, row.short_ledger_count) == (True, len(found))
    assert row.short_bytes == sum(shortage.size_bytes for shortage in found.values())

    await setting.cluster.bookie(members[0]).register(setting.cluster._store)
    await until(lambda: not broker.states.any_short)
    await broker.health.look()
    assert not broker.health.replicas_of(log).is_short


async def test_clients_see_an_under_replicated_partition(setting: Setting, broker: Broker) -> None:
    log = await ended(broker)
    admin = Admin(broker)
    await admin.start()
    members = await ledger_of(broker, log.ended_ledgers[0])
    await setting.cluster.bookie(members[1]).unregister()
    await until(lambda: broker.states.any_short)
    await look(broker)

    shown = (await admin.metadata("orders")).topics[0].partitions[0]
    assert len(shown.isr_nodes) < len(shown.replica_nodes)
    assert list(shown.offline_replicas)
    await admin.aclose()


async def test_a_job_of_repair_makes_its_partition_short_unless_it_only_moves(
    broker: Broker,
) -> None:
    log = await ended(broker)
    (first, *_) = log.ended_ledgers
    await publish(broker, first, MOVING_URGENCY)
    await look(broker)
    assert not broker.health.replicas_of(log).is_short, "a bookie that drains has good copies"

    job = await publish(broker, first, 0)
    await look(broker)
    stored = broker.health.replicas_of(log)
    assert [(shortage.ledger_id, shortage.why) for shortage in stored.shortages] == [
        (first, NAMED_BY_REPAIR)
    ]
    numbers, in_sync = await stored.read_numbers(Admin(broker).bookies._numbers)
    assert (numbers[-1], len(in_sync)) == (MISSING_REPLICA, len(numbers) - 1)

    store = JobStore(broker.store, Random(3))
    _, version = await store.get(job.name)
    await store.remove(job.name, version)
    await until(lambda: job.name.text not in broker.repair_jobs.names)
    await look(broker)
    assert not broker.health.replicas_of(log).is_short


async def test_a_bookie_in_limbo_is_not_in_sync(broker: Broker) -> None:
    log = await ended(broker)
    member = log.replicas[0]
    await LifecycleStore(broker.store, Random(4)).change(member, Lifecycle.LIMBO, "a test", 1)
    await until(lambda: bool(broker.states.why_short(member)))
    stored = broker.health.replicas_of(log)
    assert stored.is_short
    assert member not in stored.in_sync


async def test_one_look_reads_a_bounded_number_of_ledgers(
    setting: Setting, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await ended(broker, 4)
    monkeypatch.setattr("broker_layer.control.ledger_health.READS_PER_LOOK", 2)
    members = await ledger_of(broker, log.ended_ledgers[0])
    await setting.cluster.bookie(members[0]).unregister()
    await until(lambda: broker.states.any_short)
    for expected in (2, 4):
        await broker.health.look()
        assert sum(map(len, broker.health._known.values())) == expected


async def test_a_ledger_that_repair_may_have_changed_is_read_again(
    setting: Setting, broker: Broker
) -> None:
    log = await ended(broker)
    (first, *_) = log.ended_ledgers
    members = await ledger_of(broker, first)
    await setting.cluster.bookie(members[0]).unregister()
    await until(lambda: broker.states.any_short)
    await look(broker)
    assert broker.health.replicas_of(log).shortages

    await repair(setting, broker, first, members[0])
    await broker.health.look()
    assert first in [shortage.ledger_id for shortage in broker.health.replicas_of(log).shortages]
    await asyncio.sleep(REREAD_S + 1.0)
    await look(broker)
    assert first not in [
        shortage.ledger_id for shortage in broker.health.replicas_of(log).shortages
    ]


async def test_an_idle_partition_is_whole_once_its_last_ledger_is_repaired(
    setting: Setting, broker: Broker
) -> None:
    log = await ended(broker)
    await log._roller.end(1.0)  # as after a takeover without an append
    gone = log.replicas[0]
    await setting.cluster.bookie(gone).unregister()
    await until(lambda: broker.states.any_short)
    await look(broker)
    assert broker.health.replicas_of(log).is_short

    for ledger_id in log.ended_ledgers:
        if gone in await ledger_of(broker, ledger_id):
            await repair(setting, broker, ledger_id, gone)
    members = await ledger_of(broker, log.ended_ledgers[-1])
    for state in (Lifecycle.LOST, Lifecycle.DRAINED):  # by repair
        await LifecycleStore(broker.store, Random(4)).change(gone, state, "a test", 1)
    await until(lambda: not broker.states.any_short)
    await asyncio.sleep(REREAD_S + 1.0)
    await look(broker)
    stored = broker.health.replicas_of(log)
    assert (stored.is_short, stored.replicas) == (False, members)
    assert not broker.health._may_change()

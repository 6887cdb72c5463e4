"""Transactions with crashes, moves, and lost, repeated or late markers: each ends once."""

import asyncio
from random import Random

import pytest

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.transactions.values import TopicPartition, TransactionState
from tests.support.broker_layer.model_cluster import Cluster, Faults
from tests.support.broker_layer.model_partition import ModelPartition, Tag
from tests.support.broker_layer.model_producer import Ledger, ModelProducer
from tests.virtual_time import VirtualTimeLoop

FAULTY_S = 20.0


async def run_seed(seed: int) -> int:
    """Run one seed; return the number of committed transactions."""
    rng = Random(seed)
    cluster = Cluster(rng, broker_count=3, delay_max_s=rng.choice([0.005, 0.05]))
    for topic, number in [("a", 0), ("a", 1), ("b", 0), (CONSUMER_OFFSETS, 0)]:
        cluster.add_partition(topic, number)
    for broker in cluster.brokers:
        broker.coordinator.start()
    for number in range(len(cluster.states)):
        await cluster.move_state(number, is_graceful=True)
    cluster.faults = Faults(lost=rng.random() / 4, late=rng.random() / 4, answer_lost=0.1)
    ledger = Ledger()
    producers = [
        asyncio.ensure_future(live_and_die(cluster, ledger, name)) for name in ("x", "y", "z")
    ]
    troubles = asyncio.ensure_future(trouble(cluster))
    await asyncio.sleep(FAULTY_S)
    troubles.cancel()
    await asyncio.gather(troubles, return_exceptions=True)
    cluster.faults = Faults()
    await heal(cluster)
    await asyncio.gather(*producers)
    await asyncio.gather(*ledger.stragglers)
    await asyncio.sleep(30.0)
    check(cluster, ledger)
    await cluster.aclose()
    return sum(ledger.ended.values())


async def live_and_die(cluster: Cluster, ledger: Ledger, name: str) -> None:
    """Run incarnations of one id; an old one may continue while a new one runs."""
    rng = cluster.rng
    old: list[asyncio.Task[None]] = []
    for incarnation in range(4):
        producer = ModelProducer(cluster, ledger, name, incarnation)
        task = asyncio.ensure_future(producer.run(rng.randint(1, 12)))
        await asyncio.sleep(rng.random() * 4)
        if rng.random() < 0.5:
            await task
        elif rng.random() < 0.5:
            task.cancel()
        old.append(task)
    for result in await asyncio.gather(*old, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError), result


async def trouble(cluster: Cluster) -> None:
    """Move coordinators and leaders."""
    rng = cluster.rng
    while True:
        await asyncio.sleep(rng.random() * 1.5)
        if rng.random() < 0.5:
            state = rng.randrange(len(cluster.states))
            # A move that has begun is completed, as by a controller.
            await asyncio.shield(cluster.move_state(state, is_graceful=rng.random() < 0.4))
        else:
            partition = rng.choice(sorted(cluster.partitions))
            cluster.partitions[partition].move(rng.randrange(len(cluster.brokers)))


async def heal(cluster: Cluster) -> None:
    await asyncio.sleep(5.0)
    for number in range(len(cluster.states)):
        await cluster.move_state(number, is_graceful=False)


def check(cluster: Cluster, ledger: Ledger) -> None:
    decisions: dict[Tag, dict[TopicPartition, bool]] = {}
    for name, partition in cluster.partitions.items():
        for tag, committed in outcomes(partition).items():
            decisions.setdefault(tag, {})[name] = committed
    for tag, by_partition in decisions.items():
        found = list(by_partition.values())
        assert len(dict.fromkeys(found)) == 1, f"{tag} ended in two ways: {by_partition}"
        if tag in ledger.ended:
            assert found[0] == ledger.ended[tag], f"{tag} ended otherwise than it was told"
        if found[0]:
            assert tag in ledger.asked_to_commit, f"{tag} was committed without being asked to"
    for number, leader in enumerate(cluster.state_leaders):
        coordinator = cluster.brokers[leader].coordinator
        for machine in coordinator._led.at(number).machines.values():
            assert machine.transaction is not None
            assert machine.transaction.state.is_idle, machine.transaction
            assert machine.transaction.state is not TransactionState.DEAD
    assert not any(broker.guards._live for broker in cluster.brokers)


def outcomes(partition: ModelPartition) -> dict[Tag, bool]:
    """Return the outcome of each transaction in a partition."""
    ended: dict[Tag, bool] = {}
    under_way: dict[int, dict[Tag, None]] = {}
    newest_coordinator: dict[int, int] = {}
    assert partition.committed == len(partition.entries)
    for entry in partition.entries:
        if entry.tag is not None:
            assert entry.tag not in ended, f"{entry.tag} goes on behind its marker"
            under_way.setdefault(entry.producer_id, {})[entry.tag] = None
            continue
        newest = newest_coordinator.get(entry.producer_id, -1)
        assert entry.coordinator_epoch >= newest, "a marker of an older coordinator"
        newest_coordinator[entry.producer_id] = entry.coordinator_epoch
        tags = list(under_way.pop(entry.producer_id, {}))
        assert len(tags) <= 1, f"one marker ends {tags}"
        for tag in tags:
            ended[tag] = entry.committed
    open_tags = [tag for tags in under_way.values() for tag in tags]
    assert not open_tags, f"{partition.name}: {open_tags} never ended"
    return ended


@pytest.mark.parametrize("seed", range(12))
def test_each_transaction_ends_once_with_one_outcome(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        committed = runner.run(run_seed(seed))
    assert committed > 0

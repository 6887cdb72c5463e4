"""Check after a run that nothing is left of deleted topics.

Leaves deleted topics as clients see them to `recreating`.

Invariants checked: no ledger of a deleted topic is left, and no ledger of an earlier leader that
the partition's list does not name (left over). Every ledger in a list exists (missing).
Source: topics design, "The mapping"; `broker_layer/control/ledger_sweeping.py`.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from broker_layer.log.ledger_list import EPOCH_METADATA, PARTITION_METADATA
from metadata.errors import NodeNotFoundError, TopicNotFoundError
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic_store import TopicStore
from tests.simulation.topics.topic_cluster import TopicCluster

PATIENCE_S: Final = 60.0
LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Listed:
    """Contents of a partition's list."""

    leader_epoch: int
    ledger_ids: tuple[int, ...]
    needed: tuple[int, ...]
    """Ledgers that are not to be deleted."""


async def check_leftovers(cluster: TopicCluster) -> None:
    """Wait until only listed ledgers are left."""
    store = MemoryMetadataStore(cluster.metadata)
    until_s = cluster.loop.now_s + PATIENCE_S
    try:
        while True:
            listed = await _listed(store)
            left = _left(cluster, listed)
            if not left or cluster.loop.now_s > until_s:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        if left:
            cluster.model.report("left over", "; ".join(left))
        missing = [n for each in listed.values() for n in each.needed if not _exists(cluster, n)]
        now = await _listed(store)  # retention may have moved a start in the meantime
        for partition, each in now.items():
            gone = [ledger_id for ledger_id in each.needed if ledger_id in missing]
            if gone:
                cluster.model.report("missing", f"{partition} lists ledgers {gone}")
    finally:
        await store.aclose()


def _exists(cluster: TopicCluster, ledger_id: int) -> bool:
    return cluster.model.ledger(ledger_id).metadata is not None


async def _listed(store: MemoryMetadataStore) -> dict[str, _Listed]:
    """Return the lists of all partitions of existing topics, by the partition's name in ledgers."""
    rng = random.Random(0)
    topics, partitions = TopicStore(store, rng), PartitionStore(store, rng)
    found: dict[str, _Listed] = {}
    for name in await topics.names():
        try:
            record, _ = await topics.get(name, fresh=True)
        except TopicNotFoundError:
            continue
        for partition in range(0 if record.is_deleted else len(record.partitions)):
            key = PartitionKey(record.topic_id, partition)
            try:
                held, _ = await partitions.get(key)
                segments = await partitions.segments(key, held)
            except NodeNotFoundError:
                continue
            start = held.log_start_offset
            kept = [each for each in segments if not each.is_below(start)]
            needed = tuple(each.ledger_id for each in segments[-1:] if record.is_internal) or tuple(
                each.ledger_id for each in kept
            )
            found[f"{key.topic_id.hex()}/{partition}"] = _Listed(
                held.leader_epoch, tuple(each.ledger_id for each in segments), needed
            )
    return found


def _left(cluster: TopicCluster, listed: dict[str, _Listed]) -> list[str]:
    left = []
    for ledger_id in cluster.ledger_ids():
        metadata = cluster.model.ledger(ledger_id).metadata
        assert metadata is not None
        partition = str(metadata.custom.get(PARTITION_METADATA))
        epoch = int(metadata.custom.get(EPOCH_METADATA, -1))
        there = listed.get(partition)
        if there is None:
            left.append(f"ledger {ledger_id} of {partition}, which is deleted")
        elif epoch < there.leader_epoch and ledger_id not in there.ledger_ids:
            left.append(f"ledger {ledger_id} of {partition}, which does not list it")
    return left

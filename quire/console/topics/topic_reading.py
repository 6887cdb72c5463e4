"""Topics with their partitions, settings and the ledgers behind them.

Leaves partitions to `quire.operate.topics`, and groups to `group_reading`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.topics.partition import PartitionKey, PartitionSegment
from metadata.topics.partition_store import PartitionStore
from metadata.topics.topic import TopicId
from quire.operate.brokers import BrokerAccess
from quire.operate.fields import Json
from quire.operate.topics import (
    ShownSetting,
    ShownTopic,
    partition_rows,
    topic_named,
    topic_settings,
)

LEDGERS_SHOWN_MAX: Final = 20
"""Maximum number of ledgers of one partition that a page lists, the newest."""
PARTITIONS_SHOWN_MAX: Final = 200
SOURCES: Final = {
    1: "this topic",
    2: "this broker, changed while it runs",
    3: "all brokers, changed while they run",
    4: "the broker's options",
    5: "default",
}


@dataclass(frozen=True, slots=True)
class PartitionLedgers:
    """The newest ledgers of a partition."""

    newest: Sequence[PartitionSegment]
    older: int
    """Number of ledgers before these."""


NO_LEDGERS: Final = PartitionLedgers((), 0)


@dataclass(frozen=True, slots=True)
class TopicView:
    """What the page of a topic shows."""

    topic: ShownTopic
    rows: Sequence[Mapping[str, Json]]
    settings: Sequence[ShownSetting]
    ledgers: Mapping[int, PartitionLedgers]
    left_out: int
    """Partitions that are not shown."""


async def read_topic(brokers: BrokerAccess, cluster: Cluster, name: str) -> TopicView:
    """Return a topic. Raises TopicRefusedError with NOT_FOUND if there is none."""
    topic = await topic_named(brokers, name)
    assert topic.topic_id is not None, "a topic that exists has an id"
    topic_id = TopicId(topic.topic_id.bytes)
    rows, settings = await asyncio.gather(
        partition_rows(topic, brokers), topic_settings(brokers, name)
    )
    shown = rows[:PARTITIONS_SHOWN_MAX]
    numbers = [each.partition_index for each in topic.partitions][:PARTITIONS_SHOWN_MAX]
    found = await asyncio.gather(
        *(_ledgers_of(cluster, PartitionKey(topic_id, each)) for each in numbers)
    )
    ledgers = dict(zip(numbers, found, strict=True))
    by_name = sorted(settings, key=lambda each: (each.config_source != 1, each.name))
    return TopicView(topic, shown, by_name, ledgers, len(rows) - len(shown))


async def _ledgers_of(cluster: Cluster, key: PartitionKey) -> PartitionLedgers:
    partitions = PartitionStore(cluster.store, cluster.rng)
    try:
        record, _ = await partitions.get(key, fresh=False)
        segments = await partitions.segments(key, record)
    except (NodeNotFoundError, MetadataFormatError):
        return NO_LEDGERS
    newest = segments[-LEDGERS_SHOWN_MAX:]
    return PartitionLedgers(newest, len(segments) - len(newest))

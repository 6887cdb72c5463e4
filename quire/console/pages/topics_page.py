"""Pages of topics: the list, and one topic with its partitions, ledgers, settings and groups."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from aiohttp import web

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId
from metadata.topics.partition import PartitionKey, PartitionSegment
from metadata.topics.partition_store import PartitionStore
from metadata.topics.replica_numbers import MISSING_REPLICA, ReplicaNumbers
from metadata.topics.topic import TopicId
from quire.console.context import Pages, Route
from quire.console.templating import asked_number, slice_of
from quire.console.topics.access import with_brokers
from quire.console.topics.groups import groups_of
from quire.operate.brokers import BrokerAccess
from quire.operate.fields import Json
from quire.operate.topics import (
    ShownSetting,
    ShownTopic,
    partition_rows,
    read_topics,
    topic_named,
    topic_settings,
)
from quire.server.overriding import override

START_MAX: Final = 10**7


class TopicPages(Pages):
    """Pages of topics."""

    @override
    def routes(self) -> Sequence[Route]:
        """See `Pages`."""
        context = self._context
        return (
            Route("GET", "/topics", with_brokers(context, "Topics", self._list)),
            Route("GET", "/topics/{topic}", with_brokers(context, "Topic", self._show)),
        )

    async def _list(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        rows = await read_topics(brokers)
        page = slice_of(rows, asked_number(request.query, "from", 0, START_MAX))
        problems = sum(bool(row.problem) for row in rows)
        return self._context.page(
            request, "topics.html", page=page, total=len(rows), problems=problems
        )

    async def _show(self, request: web.Request, brokers: BrokerAccess) -> web.Response:
        name = request.match_info["topic"]
        view = await read_topic(brokers, self._context.cluster, self._numbers, name)
        groups, groups_left_out = await groups_of(brokers, name)
        return self._context.page(
            request,
            "topic.html",
            name=name,
            view=view,
            no_ledgers=NO_LEDGERS,
            missing_replica=MISSING_REPLICA,
            sources=SOURCES,
            groups=groups,
            groups_left_out=groups_left_out,
        )

    @cached_property
    def _numbers(self) -> ReplicaNumbers:
        """Numbers of bookies, which never change: each is read once."""
        cluster = self._context.cluster
        return ReplicaNumbers(cluster.store, cluster.rng)


LEDGERS_SHOWN_MAX: Final = 20
"""Maximum number of ledgers of one partition that a page lists, the newest."""
PARTITIONS_SHOWN_MAX: Final = 200
DEFAULT_SOURCE: Final = 5
SOURCES: Final = {
    1: "this topic",
    2: "this broker, changed while it runs",
    3: "all brokers, changed while they run",
    4: "the broker's options",
    DEFAULT_SOURCE: "default",
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
    bookies: Mapping[int, BookieId]
    """Bookies by the numbers under which brokers show them as replicas."""
    changed: Sequence[ShownSetting]
    """Settings that differ from the default, those of this topic first."""
    defaults: Sequence[ShownSetting]
    ledgers: Mapping[int, PartitionLedgers]
    left_out: int
    """Partitions that are not shown."""


async def read_topic(
    brokers: BrokerAccess, cluster: Cluster, replicas: ReplicaNumbers, name: str
) -> TopicView:
    """Return a topic. Raises TopicRefusedError with NOT_FOUND if there is none."""
    topic = await topic_named(brokers, name)
    assert topic.topic_id is not None, "a topic that exists has an id"
    topic_id = TopicId(topic.topic_id.bytes)
    rows, settings, bookies = await asyncio.gather(
        partition_rows(topic, brokers), topic_settings(brokers, name), replicas.bookies()
    )
    shown = rows[:PARTITIONS_SHOWN_MAX]
    numbers = [partition.partition_index for partition in topic.partitions][:PARTITIONS_SHOWN_MAX]
    listed = await asyncio.gather(
        *(_ledgers_of(cluster, PartitionKey(topic_id, number)) for number in numbers)
    )
    ledgers = dict(zip(numbers, listed, strict=True))
    settings.sort(key=lambda setting: (setting.config_source, setting.name))
    changed = [setting for setting in settings if setting.config_source != DEFAULT_SOURCE]
    defaults = [setting for setting in settings if setting.config_source == DEFAULT_SOURCE]
    left_out = len(rows) - len(shown)
    return TopicView(topic, shown, bookies, changed, defaults, ledgers, left_out)


async def _ledgers_of(cluster: Cluster, key: PartitionKey) -> PartitionLedgers:
    partitions = PartitionStore(cluster.store, cluster.rng)
    try:
        record, _ = await partitions.get(key, fresh=False)
        segments = await partitions.segments(key, record)
    except (NodeNotFoundError, MetadataFormatError):
        return NO_LEDGERS
    newest = segments[-LEDGERS_SHOWN_MAX:]
    return PartitionLedgers(newest, len(segments) - len(newest))

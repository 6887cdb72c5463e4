"""Pages of topics: the list, and one topic with its partitions, ledgers, settings and groups."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.topics.partition import PartitionKey, PartitionSegment
from metadata.topics.partition_store import PartitionStore
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
        view = await read_topic(brokers, self._context.cluster, name)
        groups, groups_left_out = await groups_of(brokers, name)
        return self._context.page(
            request,
            "topic.html",
            name=name,
            view=view,
            no_ledgers=NO_LEDGERS,
            sources=SOURCES,
            groups=groups,
            groups_left_out=groups_left_out,
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
    numbers = [partition.partition_index for partition in topic.partitions][:PARTITIONS_SHOWN_MAX]
    listed = await asyncio.gather(
        *(_ledgers_of(cluster, PartitionKey(topic_id, number)) for number in numbers)
    )
    ledgers = dict(zip(numbers, listed, strict=True))
    by_name = sorted(settings, key=lambda setting: (setting.config_source != 1, setting.name))
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

"""Topics, their settings, partitions, leaders and offsets, as brokers describe them.

The cluster's view of a partition comes from the Metadata API; what only a leader knows comes from
its admin server.

Invariant: a lookup never creates a topic.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.log.topic_config_table import REPLICATION_FACTOR
from broker_layer.peer import PeerAddress
from quire.identity.client_file import ClientFile
from quire.operate.admin_api import AdminApiError, get_json
from quire.operate.brokers import BrokerAccess, NoBrokerError, require
from quire.operate.fields import Json

TIMEOUT_MS: Final = 30_000
NO_ID: Final = UUID(int=0)
SEE_LIST: Final = "quire topic list"

TOPIC_RESOURCE: Final = 2
TOPICS_PER_REQUEST_MAX: Final = 1_000
"""Maximum number of topics whose settings one request asks for."""

ShownTopic = MetadataResponse.MetadataResponseTopic
CreatedTopic = CreateTopicsResponse.CreatableTopicResult
ShownSetting = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult


async def topic_metadata(brokers: BrokerAccess, names: Sequence[str] | None) -> MetadataResponse:
    """Return the metadata of these topics, or of all with None; it also reports unknown topics."""
    asked = MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [asked(name=name, topic_id=NO_ID) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return await brokers.ask(request, MetadataResponse)


async def topic_named(brokers: BrokerAccess, name: str, *, try_next: str = SEE_LIST) -> ShownTopic:
    """Return a topic. Raises TopicRefusedError with NOT_FOUND if there is none."""
    (topic,) = (await topic_metadata(brokers, [name])).topics
    return require_topic(topic, name, try_next=try_next)


def require_topic(topic: ShownTopic, name: str, *, try_next: str = SEE_LIST) -> ShownTopic:
    """Return a topic's metadata. Raises TopicRefusedError with NOT_FOUND if there is no topic."""
    is_unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    text = f"there is no topic {name!r}" if is_unknown else None
    require(topic.error_code, text, try_next=try_next)
    return topic


async def topic_settings(brokers: BrokerAccess, name: str) -> list[ShownSetting]:
    """Return all settings of a topic, with their documentation. Raises TopicRefusedError."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    answer = await brokers.ask(
        DescribeConfigsRequest(resources=[resource], include_documentation=True),
        DescribeConfigsResponse,
    )
    (result,) = answer.results
    require(result.error_code, result.error_message, try_next=SEE_LIST)
    return list(result.configs)


async def replication_factors(
    brokers: BrokerAccess, topics: Sequence[ShownTopic]
) -> dict[str, int]:
    """Return the configured replication factor of topics by name. For a topic whose settings this
    client may not read it is the largest number of replicas of its partitions.
    """
    factors = {
        topic.name or "": max((len(one.replica_nodes) for one in topic.partitions), default=0)
        for topic in topics
    }
    names = list(factors)
    for start in range(0, len(names), TOPICS_PER_REQUEST_MAX):
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configuration_keys=[REPLICATION_FACTOR],
            )
            for name in names[start : start + TOPICS_PER_REQUEST_MAX]
        ]
        request = DescribeConfigsRequest(resources=resources)
        for result in (await brokers.ask(request, DescribeConfigsResponse)).results:
            for config in result.configs:
                if config.value is not None:
                    factors[result.resource_name] = int(config.value)
    return factors


async def ask_for_topic(
    brokers: BrokerAccess,
    name: str,
    *,
    partitions: int = -1,
    replication: int = -1,
    settings: Sequence[tuple[str, str]] = (),
) -> CreatedTopic:
    """Ask brokers to create a topic; -1 means their default. Return the response or refusal."""
    creatable = CreateTopicsRequest.CreatableTopic
    topic = creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[creatable.CreatableTopicConfig(name=key, value=value) for key, value in settings],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
    (made,) = (await brokers.ask(request, CreateTopicsResponse)).topics
    return made


async def make_if_missing(brokers: BrokerAccess, name: str) -> None:
    """Create a topic with the brokers' defaults if it is missing. Raises TopicRefusedError."""
    (topic,) = (await topic_metadata(brokers, [name])).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        made = await ask_for_topic(brokers, name)
        if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was first
            require(made.error_code, made.error_message)


Rows = dict[int, Mapping[str, Json]]


async def partition_rows(topic: ShownTopic, brokers: BrokerAccess) -> list[dict[str, Json]]:
    """Return a row for each partition, in order; the state of a healthy one is "served"."""
    reports = await _reports_of_leaders(topic, brokers)
    return [
        _partition_row(partition, reports.get(partition.partition_index, {}))
        for partition in sorted(topic.partitions, key=lambda row: row.partition_index)
    ]


def _partition_row(
    partition: ShownTopic.MetadataResponsePartition, report: Mapping[str, Json]
) -> dict[str, Json]:
    row: dict[str, Json] = {
        "partition": partition.partition_index,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "epoch": partition.leader_epoch,
        "replicas": list(partition.replica_nodes),
        "in_sync": list(partition.isr_nodes),
        "start": _known(report.get("log_start_offset")),
        "end": _known(report.get("high_watermark")),
        "bytes": _known(report.get("size_bytes")),
    }
    row["short_ledgers"] = _short_ledgers(report.get("short_ledgers"))
    row["short_ledger_count"] = _known(report.get("short_ledger_count"))
    row["short_bytes"] = _known(report.get("short_bytes"))
    row["future_offset"] = _known(report.get("future_offset"))
    row["future_until_ms"] = _known(report.get("future_until_ms"))
    missing = report.get("missing")
    if missing:
        row["state"] = f"not served for {report.get('since_s')} s: {missing}"
    elif partition.leader_id < 0:
        row["state"] = "no broker leads it"
    elif row["short_ledgers"]:
        row["state"] = f"{row['short_ledger_count']} ledgers lack copies"
    elif len(partition.isr_nodes) < len(partition.replica_nodes):
        row["state"] = "lacks replicas in sync"
    else:
        row["state"] = "served"
    return row


def _short_ledgers(reported: Json) -> list[Json]:
    """Return the ended ledgers that lack copies, as a leader reports them."""
    return [
        {
            "ledger": row.get("ledger_id"),
            "entries": row.get("entry_count"),
            "bytes": row.get("size_bytes"),
            "why": row.get("why"),
        }
        for row in (reported if isinstance(reported, list) else ())
        if isinstance(row, Mapping)
    ]


def _known(number: Json) -> Json:
    return number if isinstance(number, int) and number >= 0 else None


async def _reports_of_leaders(topic: ShownTopic, brokers: BrokerAccess) -> Rows:
    urls = [row.admin_url for row in brokers.registrations if row.admin_url]
    answers = await asyncio.gather(*[_partitions_of(url, brokers.identity) for url in urls])
    leaders = {row.partition_index: row.leader_epoch for row in topic.partitions}
    rows: Rows = {}
    for row in (row for answer in answers for row in answer):
        partition = row.get("partition")
        is_newest = isinstance(partition, int) and row.get("leader_epoch") == leaders.get(partition)
        if row.get("topic") == topic.name and isinstance(partition, int) and is_newest:
            rows[partition] = row
    return rows


async def _partitions_of(url: str, identity: ClientFile) -> list[Mapping[str, Json]]:
    try:
        answer = await get_json(f"{url}/api/v1/partitions", identity)
    except AdminApiError:
        return []
    rows = answer.get("partitions") if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        return []
    return [row for row in rows if isinstance(row, Mapping)]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """What the list shows of one topic."""

    name: str
    partitions: int
    replication: int
    without_leader: int
    short_of_replicas: int
    """Partitions with fewer replicas in sync than replicas."""
    is_internal: bool

    @property
    def problem(self) -> str:
        """What is wrong; empty if nothing."""
        problems = []
        if self.without_leader:
            problems.append(f"{self.without_leader} without a leader")
        if self.short_of_replicas:
            problems.append(f"{self.short_of_replicas} lack replicas in sync")
        return ", ".join(problems)


async def read_topics(brokers: BrokerAccess) -> list[TopicRow]:
    """Return all topics, those of coordinators last."""
    topics = (await topic_metadata(brokers, None)).topics
    replication = await replication_factors(brokers, topics)
    rows = [
        TopicRow(
            topic.name or "",
            len(topic.partitions),
            replication[topic.name or ""],
            sum(partition.leader_id < 0 for partition in topic.partitions),
            sum(len(row.isr_nodes) < len(row.replica_nodes) for row in topic.partitions),
            bool(topic.is_internal),
        )
        for topic in topics
    ]
    return sorted(rows, key=lambda row: (row.is_internal, row.name))


LATEST: Final = -1
EARLIEST: Final = -2


class Place(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class Found(NamedTuple):
    """An offset, and the time of its record in ms; -1 if there is none."""

    offset: int
    time_ms: int


def leaders_in(response: MetadataResponse) -> dict[Place, PeerAddress]:
    """Return the leaders of the topics of an answer, without partitions that have none."""
    brokers = {
        node.node_id: PeerAddress(node.node_id, node.host, node.port) for node in response.brokers
    }
    return {
        Place(topic.name or "", partition.partition_index): brokers[partition.leader_id]
        for topic in response.topics
        for partition in topic.partitions
        if partition.leader_id in brokers
    }


async def offsets_at(
    brokers: BrokerAccess,
    leaders: Mapping[Place, PeerAddress],
    places: Iterable[Place],
    time_ms: int,
) -> dict[Place, Found]:
    """Return the first offset of each partition at or after a time, or EARLIEST or LATEST. Leaves
    out partitions without a leader that answers.
    """
    by_leader: dict[PeerAddress, list[Place]] = {}
    for place in places:
        if place in leaders:
            by_leader.setdefault(leaders[place], []).append(place)
    answers = await asyncio.gather(
        *(_offsets_of(brokers, leader, some, time_ms) for leader, some in by_leader.items())
    )
    return {place: position for answer in answers for place, position in answer.items()}


async def _offsets_of(
    brokers: BrokerAccess, leader: PeerAddress, places: list[Place], time_ms: int
) -> dict[Place, Found]:
    kind = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    asked = [
        kind(
            name=name,
            partitions=[
                kind.ListOffsetsPartition(partition_index=partition, timestamp=time_ms)
                for partition in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    try:
        request = ListOffsetsRequest(isolation_level=0, topics=asked)
        answer = await brokers.ask_one(leader, request, ListOffsetsResponse)
    except NoBrokerError:
        return {}
    return {
        Place(topic.name, partition.partition_index): Found(partition.offset, partition.timestamp)
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    }


def leader_of(leaders: Mapping[Place, PeerAddress], place: Place) -> PeerAddress:
    """Return the leader of a partition. Raises NoBrokerError if it has none."""
    leader = leaders.get(place)
    if leader is None:
        text = f"no broker leads {place.topic}-{place.partition}"
        raise NoBrokerError(text, try_next=f"quire topic show {place.topic}")
    return leader

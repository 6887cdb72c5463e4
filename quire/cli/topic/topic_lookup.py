"""Lookup and creation of topics, for the verbs of `quire topic`.

Leaves reaching the brokers to `topic_access`.

Invariant: a lookup never creates a topic.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.log.settings.topic_config_table import REPLICATION_FACTOR
from quire.cli.topic.topic_access import BrokerAccess, require

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
        each.name or "": max((len(one.replica_nodes) for one in each.partitions), default=0)
        for each in topics
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
            for each in result.configs:
                if each.value is not None:
                    factors[result.resource_name] = int(each.value)
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
        configs=[
            creatable.CreatableTopicConfig(name=each, value=value) for each, value in settings
        ],
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

"""Looks topics up by name, and makes them, for the verbs of `quire topic`.

Leaves reaching the brokers to `topic_access`.

Invariant: looking a topic up never makes one.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.kafka.versions import ApiKey
from quire.cli.topic.topic_access import BrokerAccess, require

TIMEOUT_MS: Final = 30_000
NO_ID: Final = UUID(int=0)
SEE_LIST: Final = "quire topic list"

ShownTopic = MetadataResponse.MetadataResponseTopic
CreatedTopic = CreateTopicsResponse.CreatableTopicResult


async def shown(brokers: BrokerAccess, names: Sequence[str] | None) -> MetadataResponse:
    """Return what brokers show of these topics, None: of all; also that there is none."""
    asked = MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [asked(name=name, topic_id=NO_ID) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return await brokers.ask(ApiKey.METADATA, request, MetadataResponse)


async def topic_named(brokers: BrokerAccess, name: str, *, try_next: str = SEE_LIST) -> ShownTopic:
    """Return a topic. Raises TopicRefusedError, NOT_FOUND where there is none."""
    (topic,) = (await shown(brokers, [name])).topics
    return there(topic, name, try_next=try_next)


def there(topic: ShownTopic, name: str, *, try_next: str = SEE_LIST) -> ShownTopic:
    """Return what is shown of a topic. Raises TopicRefusedError, NOT_FOUND for none."""
    is_unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    text = f"there is no topic {name!r}" if is_unknown else None
    require(topic.error_code, text, try_next=try_next)
    return topic


async def ask_for_topic(
    brokers: BrokerAccess,
    name: str,
    *,
    partitions: int = -1,
    replication: int = -1,
    settings: Sequence[tuple[str, str]] = (),
) -> CreatedTopic:
    """Have a topic made, at -1 with what the brokers give; return their answer, a refusal too."""
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
    (made,) = (await brokers.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)).topics
    return made


async def make_if_missing(brokers: BrokerAccess, name: str) -> None:
    """Have a topic made with what the brokers give, unless there is one. Raises
    TopicRefusedError.
    """
    (topic,) = (await shown(brokers, [name])).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        made = await ask_for_topic(brokers, name)
        if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:  # by another one, just now
            require(made.error_code, made.error_message)

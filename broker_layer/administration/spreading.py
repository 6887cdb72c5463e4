"""Wait until all live brokers show a change of topics.

Leaves the change to `topic_changes.py`, and connections to `broker_layer.peer`.

Each broker learns of a change from the metadata service, sooner or later. This module sends the
others Metadata or DescribeConfigs requests, as a client does, until they show the change. Then any
broker that the client requests next knows it.

Invariants: the wait is bounded; it skips brokers that left or do not answer.

Source: Kafka answers such requests after the answering broker has applied the controller's change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from broker_layer.administration.shown_configs import ConfigSource, ResourceType
from broker_layer.control.cluster_view import ClusterView
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker_layer.log.topic_configs import own_configs
from broker_layer.peer import PeerAddress, PeerError, Peers
from metadata.topics.topic import TopicRecord

SPREAD_S_MAX: Final = 2.0
"""Maximum time that an answer waits until other brokers show the change, in seconds."""
LOOK_FIRST_S: Final = 0.01
LOOK_MAX_S: Final = 0.2
VERSION: Final = 10
"""Version of the Metadata requests: the first with topic ids."""
SETTINGS_VERSION: Final = 4
"""Version of the DescribeConfigs requests: the first flexible one."""
SETTINGS_TOPICS_MAX: Final = 50
"""Maximum number of topics whose settings are waited for: an answer has all settings of each."""

_NO_ID: Final = UUID(int=0)
_Asked = MetadataRequest.MetadataRequestTopic


class TopicSpreading:
    """Waits until the other brokers show changes; requests their views by one listener."""

    def __init__(self, broker_id: int, view: ClusterView, peers: Peers, listener: str) -> None:
        self._broker_id = broker_id
        self._view = view
        self._peers = peers
        self._listener = listener

    async def wait(self, records: Sequence[TopicRecord]) -> None:
        """Return once all brokers show these topics, and no longer show the deleted ones; return
        after SPREAD_S_MAX at the latest.
        """
        request = _request(records)

        async def are_shown(address: PeerAddress) -> bool:
            response = await self._peers.ask(
                address, request, MetadataResponse, VERSION, SPREAD_S_MAX
            )
            return _shows(response, records)

        if records:
            await self._wait_for_all(are_shown)

    async def wait_for_settings(self, names: Sequence[str]) -> None:
        """Return once all brokers show the settings of these topics that this broker shows, of the
        last SETTINGS_TOPICS_MAX of them; return after SPREAD_S_MAX at the latest.
        """
        names = names[-SETTINGS_TOPICS_MAX:]
        request = _settings_request(names)

        async def are_shown(address: PeerAddress) -> bool:
            response = await self._peers.ask(
                address, request, DescribeConfigsResponse, SETTINGS_VERSION, SPREAD_S_MAX
            )
            known = self._view.topics
            wanted = {name: own_configs(known[name].configs) for name in names if name in known}
            return _shows_settings(response, wanted)

        if names:
            await self._wait_for_all(are_shown)

    async def _wait_for_all(self, are_shown: Callable[[PeerAddress], Awaitable[bool]]) -> None:
        others = [broker for broker in self._view.brokers if broker != self._broker_id]
        try:
            async with asyncio.timeout(SPREAD_S_MAX):
                await asyncio.gather(*[self._wait_for(other, are_shown) for other in others])
        except TimeoutError:
            pass

    async def _wait_for(
        self, broker_id: int, are_shown: Callable[[PeerAddress], Awaitable[bool]]
    ) -> None:
        pause_s = LOOK_FIRST_S
        while (address := self._view.address_of(broker_id, self._listener)) is not None:
            try:
                if await are_shown(PeerAddress(broker_id, *address)):
                    return
            except PeerError:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_MAX_S)


def _request(records: Sequence[TopicRecord]) -> MetadataRequest:
    topics = [_Asked(topic_id=_NO_ID, name=record.name) for record in records]
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _shows(response: MetadataResponse, records: Sequence[TopicRecord]) -> bool:
    """Return whether an answer shows the topics as stored here, or newer."""
    counts = {
        (topic.name, topic.topic_id): len(topic.partitions)
        for topic in response.topics
        if topic.error_code == ErrorCode.NONE
    }
    for record in records:
        count = counts.get((record.name, UUID(bytes=bytes(record.topic_id))), 0)
        if count if record.is_deleted else count < len(record.partitions):
            return False
    return True


def _settings_request(names: Sequence[str]) -> DescribeConfigsRequest:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        kind(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None)
        for name in names
    ]
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=False, include_documentation=False
    )


def _shows_settings(
    response: DescribeConfigsResponse, wanted: Mapping[str, Mapping[str, str]]
) -> bool:
    """Return whether an answer shows exactly these settings of topics as the topics' own ones."""
    shown = {
        result.resource_name: {
            config.name: config.value
            for config in result.configs
            if config.config_source == ConfigSource.DYNAMIC_TOPIC
        }
        for result in response.results
        if result.error_code == ErrorCode.NONE
    }
    return all(shown.get(name) == settings for name, settings in wanted.items())

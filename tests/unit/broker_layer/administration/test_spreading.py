"""Changes of topics are answered once other brokers show them, or after a timeout."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from broker_layer.administration.config_admin import ConfigAdmin, StepKind
from broker_layer.administration.spreading import TopicSpreading
from broker_layer.control.control_config import ControlConfig
from broker_layer.handlers import RequestContext
from broker_layer.kafka.messages import (
    ApiMessage,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    decode_request,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import PeerAddress, PeerError, Peers
from metadata.topics.topic import TopicRecord
from quire.server.overriding import override
from tests.support.broker_layer.asking import NO_ID, Admin, AskedTopic, topic
from tests.support.broker_layer.control_setting import LISTENER, Setting
from tests.until import until


@dataclass
class LatePeer(Peers):
    """Another broker, which answers from `behind` until it is released."""

    other: Admin
    behind: dict[str, TopicRecord]
    asked: int = 0
    topics_asked: list[str] = field(default_factory=list)
    is_late: bool = True
    is_away: bool = False

    @override
    async def call(
        self, address: PeerAddress, api_key: int, version: int, body: bytes, *, timeout_s: float
    ) -> memoryview:
        assert (address.broker_id, address.host) == (2, "host-2")
        self.asked += 1
        if self.is_away:
            raise PeerError("it is not reached")
        request = decode_request(ApiKey(api_key), version, body)
        view = self.other.broker.view
        known = dict(view._topics)
        if self.is_late:
            view._topics.clear()
            view._topics.update(self.behind)
        answer = await self._answer(request, version)
        if self.is_late:
            view._topics.clear()
            view._topics.update(known)
        return memoryview(bytes(answer.encode(version)))

    async def _answer(self, request: ApiMessage, version: int) -> ApiMessage:
        if isinstance(request, DescribeConfigsRequest):
            self.topics_asked += [resource.resource_name for resource in request.resources]
            key = ApiKey.DESCRIBE_CONFIGS
            return await self.other.ask(key, request, DescribeConfigsResponse, version)
        assert isinstance(request, MetadataRequest)
        topics = [
            AskedTopic(name=request_topic.name, topic_id=NO_ID)
            for request_topic in request.topics or ()
        ]
        asking = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return await self.other.ask(ApiKey.METADATA, asking, MetadataResponse, version)


async def prepared(setting: Setting, admin: Admin) -> tuple[LatePeer, TopicSpreading]:
    other = await setting.broker(2)
    await until(lambda: len(admin.broker.view.brokers) == 2)
    await admin.create(topic("a", 1))
    await until(lambda: "a" in other.view.topics)
    peer = LatePeer(Admin(other), dict(other.view.topics))
    return peer, TopicSpreading(1, admin.broker.view, peer, LISTENER)


async def test_create_partitions_is_answered_once_other_brokers_show_them(
    setting: Setting, admin: Admin
) -> None:
    peer, spreading = await prepared(setting, admin)
    record = await admin.broker.changes.add_partitions("a", 3, [1, 1])
    await until(lambda: len(peer.other.broker.view.topics["a"].partitions) == 3)
    waiting = asyncio.ensure_future(spreading.wait([record]))
    await until(lambda: peer.asked >= 3)
    assert not waiting.done()
    peer.is_late = False
    await waiting


async def test_a_deletion_is_answered_once_no_broker_shows_the_topic(
    setting: Setting, admin: Admin
) -> None:
    peer, spreading = await prepared(setting, admin)
    record = await admin.broker.changes.delete("a")
    waiting = asyncio.ensure_future(spreading.wait([record]))
    await until(lambda: peer.asked >= 3)
    assert not waiting.done()
    peer.is_late = False
    await waiting


@pytest.mark.parametrize("value", ["5000", None])
async def test_settings_are_answered_once_other_brokers_show_them(
    setting: Setting, admin: Admin, value: str | None
) -> None:
    peer, spreading = await prepared(setting, admin)
    assert await admin.step("a", "retention.ms", "4000") == 0
    await until(lambda: "retention.ms" in peer.other.broker.view.topics["a"].configs)
    peer.behind = dict(peer.other.broker.view.topics)
    broker = admin.broker
    handlers = ConfigAdmin(1, broker.view, broker.changes, ControlConfig(), spreading)
    steps = IncrementalAlterConfigsRequest.AlterConfigsResource
    kind = StepKind.DELETE if value is None else StepKind.SET
    step = steps.AlterableConfig(name="retention.ms", config_operation=kind, value=value)
    resource = steps(resource_type=2, resource_name="a", configs=[step])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    context = RequestContext(1, "client", "host", LISTENER, 1)
    waiting = asyncio.ensure_future(handlers.alter_incrementally(request, context))
    await until(lambda: peer.asked >= 3)
    assert not waiting.done()
    peer.is_late = False
    answer = await waiting
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0


async def test_settings_of_a_topic_that_was_deleted_are_not_waited_for(
    setting: Setting, admin: Admin
) -> None:
    peer, spreading = await prepared(setting, admin)
    await admin.broker.changes.delete("a")
    await spreading.wait_for_settings(["a"])
    assert peer.asked == 1


async def test_settings_of_some_of_many_topics_are_waited_for(
    setting: Setting, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_layer.administration.spreading.SETTINGS_TOPICS_MAX", 2)
    peer, spreading = await prepared(setting, admin)
    peer.is_late = False
    await spreading.wait_for_settings(["a", "b", "c", "d"])
    assert peer.topics_asked == ["c", "d"]
    await spreading.wait_for_settings([])
    assert peer.asked == 1


async def test_unreachable_brokers_are_not_waited_for(setting: Setting, admin: Admin) -> None:
    peer, spreading = await prepared(setting, admin)
    record = await admin.broker.changes.add_partitions("a", 3, [1, 1])
    peer.is_away = True
    await spreading.wait([record])
    assert peer.asked == 1


async def test_the_wait_is_bounded(
    setting: Setting, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_layer.administration.spreading.SPREAD_S_MAX", 0.5)
    peer, spreading = await prepared(setting, admin)
    record = admin.broker.view.topics["a"]
    await spreading.wait([replace(record, partitions=record.partitions * 5)])
    assert peer.asked > 1

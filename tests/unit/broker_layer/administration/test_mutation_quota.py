"""Quota of changes of topics (KIP-599): counted by partitions, refused in newer versions."""

import asyncio

import pytest

from broker_layer.administration.topic_admin import MutationQuota
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker_layer.kafka.versions import ApiKey
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey, entity_of
from tests.support.broker_layer.asking import NO_ID, Admin, topic
from tests.until import until

EVERYONE = entity_of([("user", None)])
REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_Grow = CreatePartitionsRequest.CreatePartitionsTopic


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Limited:
    """Administration of a broker with a quota of one partition in a second, ten at once."""

    def __init__(self, admin: Admin) -> None:
        self.admin, self.clock, self.quotas = admin, Clock(), QuotaSet()
        self.quotas.put(EVERYONE, {QuotaKey.CONTROLLER_MUTATION_RATE: 1.0})
        quota = MutationQuota(admin.broker.view, self.quotas, self.clock, 1)
        changes = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
        admin.handlers.update(quota.limited({key: admin.handlers[key] for key in changes}))

    async def create(
        self, name: str, partitions: int, version: int = 7, *, validate_only: bool = False
    ) -> tuple[int, int]:
        """Create a topic; return the error code and the pause in milliseconds."""
        request = CreateTopicsRequest(
            topics=[topic(name, partitions)], timeout_ms=5_000, validate_only=validate_only
        )
        answer = await self.admin.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, version)
        (row,) = answer.topics
        if not row.error_code and not validate_only:
            await until(lambda: self.admin.broker.view.partition_count(name) == partitions)
        return row.error_code, answer.throttle_time_ms

    async def grow(self, name: str, count: int, version: int = 3) -> tuple[int, int]:
        request = CreatePartitionsRequest(
            topics=[_Grow(name=name, count=count, assignments=None)],
            timeout_ms=5_000,
            validate_only=False,
        )
        answer = await self.admin.ask(
            ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, version
        )
        (row,) = answer.results
        if not row.error_code:
            await until(lambda: self.admin.broker.view.partition_count(name) == count)
        return row.error_code, answer.throttle_time_ms

    async def delete(self, name: str, version: int = 5) -> tuple[int, int]:
        request = DeleteTopicsRequest(topic_names=[name], topics=[], timeout_ms=5_000)
        if version >= 6:
            kind = DeleteTopicsRequest.DeleteTopicState
            request = DeleteTopicsRequest(
                topics=[kind(name=name, topic_id=NO_ID)], topic_names=[], timeout_ms=5_000
            )
        answer = await self.admin.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, version)
        (row,) = answer.responses
        return row.error_code, answer.throttle_time_ms


@pytest.fixture
def limited(admin: Admin) -> Limited:
    return Limited(admin)


async def test_partitions_of_new_topics_are_counted(limited: Limited) -> None:
    assert await limited.create("a", 10) == (0, 0)
    assert await limited.create("x", 10, validate_only=True) == (0, 0)
    assert await limited.create("b", 5) == (0, 0), "within the quota until then"
    assert await limited.create("c", 1) == (REFUSED, 5_000)
    assert "c" not in limited.admin.broker.view.topics
    limited.clock.now_s = 5.0
    assert await limited.create("c", 1) == (0, 0)
    assert await limited.create("d", 1) == (REFUSED, 1_000)


async def test_requests_that_come_together_exceed_the_quota_once(limited: Limited) -> None:
    """Each of them was within the quota when it came."""
    names = [f"t{number}" for number in range(5)]
    made = await asyncio.gather(*[limited.create(name, 11) for name in names])
    assert sorted(code for code, _ in made) == [0, *[REFUSED] * 4]
    limited.clock.now_s = 1.0
    grown = await asyncio.gather(*[limited.grow("t0", count) for count in (20, 21, 22)])
    assert sorted(code for code, _ in grown) == [0, REFUSED, REFUSED]
    limited.clock.now_s = 100.0
    refused = await asyncio.gather(*[limited.create("t0", 99) for _ in range(5)])
    assert {code for code, _ in refused} == {ErrorCode.TOPIC_ALREADY_EXISTS, REFUSED}
    assert await limited.create("later", 1) == (0, 0), "what was not done is not counted"


async def test_an_older_client_is_served_and_paused(limited: Limited) -> None:
    assert await limited.create("a", 12, 5) == (0, 2_000)
    assert await limited.create("b", 1, 5) == (0, 3_000)
    assert await limited.grow("b", 3, 2) == (0, 5_000)
    assert await limited.delete("b", 4) == (0, 8_000)


async def test_new_partitions_and_deletions_are_counted(limited: Limited) -> None:
    assert await limited.create("a", 4) == (0, 0)
    assert await limited.grow("a", 9) == (0, 0)
    assert await limited.delete("a", 6) == (0, 0)
    assert await limited.delete("a", 6) == (REFUSED, 8_000)
    assert await limited.delete("a", 5) == (REFUSED, 8_000)
    assert await limited.grow("a", 99) == (REFUSED, 8_000)


async def test_failures_are_not_counted(limited: Limited) -> None:
    for _ in range(20):
        assert await limited.delete("absent") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        code, pause_ms = await limited.grow("absent", 9)
        assert (code, pause_ms) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


async def test_without_a_quota_nothing_is_counted(limited: Limited) -> None:
    limited.quotas.remove(EVERYONE)
    assert await limited.create("a", 100) == (0, 0)
    limited.quotas.put(EVERYONE, {QuotaKey.CONTROLLER_MUTATION_RATE: 1.0})
    assert await limited.create("b", 1) == (0, 0)

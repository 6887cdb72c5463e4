"""Handlers of CreateTopics, DeleteTopics and CreatePartitions.

Leaves the changes to `topic_changes.py`, waiting for other brokers to `spreading.py`, settings to
`config_admin.py`, and leaders to `leader_elections.py`. `topic_admin_handlers` collects all of
them.

A manual assignment is a list of brokers for each partition. Here a broker leads and bookies
replicate. So the first broker of a list becomes the preferred leader, and the length of the lists
becomes the replication factor.

Invariants: each topic of a request has its own answer; a topic that is named twice is refused; with
`validate_only` nothing is stored; a request adds at most NEW_PARTITIONS_MAX partitions, and what is
over is refused.

Source: KIP-4, KIP-195, KIP-464 (defaults by -1), KIP-516 (topic ids), KIP-525 (configs in answers).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import UUID

from broker_layer.administration.shown_configs import topic_rows
from broker_layer.administration.spreading import TopicSpreading
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.topic_changes import NewTopic, TopicChanges
from broker_layer.errors import TopicError
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker_layer.log.topic_configs import replication_factor
from broker_layer.turns import Turns
from metadata.topics.topic import PARTITIONS_MAX, TopicRecord
from metadata.topics.topic_names import alike

TIMEOUT_S_MAX: Final = 60.0
CHANGES_AT_ONCE_MAX: Final = 64
"""Maximum number of topics of one request that are changed at the same time."""
NEW_PARTITIONS_MAX: Final = PARTITIONS_MAX
"""Maximum number of partitions that one request adds to all its topics. It is Kafka's limit for
CreateTopics.
"""
BY_ID_VERSION: Final = 6
"""First version of DeleteTopics that accepts ids as well as names."""

AnswerT = TypeVar("AnswerT")

_Creatable = CreateTopicsRequest.CreatableTopic
_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult


@dataclass(frozen=True, slots=True)
class _AskedDeletion:
    """A topic to delete, as requested: by its name or by its id."""

    name: str | None
    topic_id: UUID | None


class _Room:
    """Partitions that one request may still add."""

    def __init__(self) -> None:
        self._left = NEW_PARTITIONS_MAX

    def check(self, count: int) -> None:
        """Raise TopicError if there is no room for so many, before they are planned."""
        if min(count, PARTITIONS_MAX) > self._left:
            text = (
                f"with this topic, the request adds more than {NEW_PARTITIONS_MAX} partitions: send"
                " another one for it"
            )
            raise TopicError(ErrorCode.POLICY_VIOLATION, text)

    def take(self, count: int) -> None:
        """Take room for partitions that are planned."""
        self._left -= count


class TopicAdmin:
    """Handlers for changes of topics. Any broker may receive the requests."""

    def __init__(
        self,
        view: ClusterView,
        changes: TopicChanges,
        config: ControlConfig,
        spreading: TopicSpreading | None,
    ) -> None:
        """Without `spreading`, answers do not wait for other brokers."""
        self._view = view
        self._changes = changes
        self._config = config
        self._spreading = spreading

    # -- creation --------------------------------------------------------------------------------

    async def create_topics(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer CreateTopics."""
        assert isinstance(request, CreateTopicsRequest), "the dispatcher selects by API"
        del context
        counts = Counter(topic.name for topic in request.topics)
        loads = self._changes.loads()
        timeout_s = None if request.validate_only else _seconds(request.timeout_ms)
        stored: list[TopicRecord] = []
        answers: list[_Created] = []
        planned: list[TopicRecord | _Created] = []
        names, turns, room = dict[str, str](), Turns(), _Room()
        for name, count in counts.items():
            if count > 1:  # answered once: the answer has one row for each name
                text = f"{name!r} is named more than once"
                answers.append(_not_created(name, ErrorCode.INVALID_REQUEST, text))
        for topic in request.topics:
            if counts[topic.name] > 1:
                continue
            await turns.pass_on()
            try:
                self._changes.check_alike(topic.name, names)
                wanted = _wanted(topic)
                room.check(self._count_of(wanted))
                record = self._changes.plan(wanted, loads)
                room.take(len(record.partitions))
            except TopicError as error:
                planned.append(_not_created(topic.name, error.code, error.text))
            else:
                names[alike(topic.name)] = topic.name
                planned.append(record)
        answers += await _gather_bounded(
            self._create(each, timeout_s, stored)
            if isinstance(each, TopicRecord)
            else _immediate(each)
            for each in planned
        )
        await self._wait_until_shown(stored)
        return CreateTopicsResponse(throttle_time_ms=0, topics=answers)

    def _count_of(self, wanted: NewTopic) -> int:
        if wanted.leaders is not None:
            return len(wanted.leaders)
        is_default = wanted.partitions == -1
        return self._config.topic_defaults.partitions if is_default else wanted.partitions

    async def _create(
        self, record: TopicRecord, timeout_s: float | None, stored: list[TopicRecord]
    ) -> _Created:
        """Store a planned topic, unless `timeout_s` is None; return its answer."""
        if timeout_s is not None:
            try:
                record = await self._changes.store(record, timeout_s)
            except TopicError as error:
                return _not_created(record.name, error.code, error.text)
            stored.append(record)
        return self._created(record)

    def _created(self, record: TopicRecord) -> _Created:
        defaults = self._config.topic_defaults
        return _Created(
            name=record.name,
            topic_id=UUID(bytes=bytes(record.topic_id)),
            error_code=ErrorCode.NONE,
            num_partitions=len(record.partitions),
            replication_factor=replication_factor(record.configs, defaults),
            configs=[
                _Created.CreatableTopicConfigs(
                    name=row.name,
                    value=row.value,
                    read_only=row.is_read_only,
                    config_source=row.source,
                    is_sensitive=False,
                )
                for row in topic_rows(record.configs, defaults)
            ],
        )

    # -- partitions ------------------------------------------------------------------------------

    async def create_partitions(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer CreatePartitions."""
        assert isinstance(request, CreatePartitionsRequest), "the dispatcher selects by API"
        del context
        loads = self._changes.loads()
        stored: list[TopicRecord] = []
        answers: list[_Grown] = []
        works: list[Awaitable[_Grown]] = []
        room = _Room()
        counts, turns = Counter(topic.name for topic in request.topics), Turns()
        for name in (name for name, count in counts.items() if count > 1):
            text = f"{name!r} is named more than once"
            answers.append(_not_grown(name, ErrorCode.INVALID_REQUEST, text))
        for topic in request.topics:
            if counts[topic.name] > 1:
                continue
            await turns.pass_on()
            try:
                leaders = None
                if topic.assignments is not None:
                    leaders = _first_brokers([each.broker_ids for each in topic.assignments])
                room.check(topic.count - self._view.partition_count(topic.name))
                planned = self._changes.plan_partitions(topic.name, topic.count, leaders, loads)
                room.take(len(planned))
            except TopicError as error:
                works.append(_immediate(_not_grown(topic.name, error.code, error.text)))
            else:
                planned = [] if request.validate_only else planned
                works.append(self._grow(topic.name, topic.count, planned, stored))
        answers += await _gather_bounded(works)
        await self._wait_until_shown(stored)
        return CreatePartitionsResponse(throttle_time_ms=0, results=answers)

    async def _grow(
        self, name: str, count: int, leaders: Sequence[int], stored: list[TopicRecord]
    ) -> _Grown:
        """Add planned partitions, if there are any; return the topic's answer."""
        if leaders:
            try:
                stored.append(await self._changes.add_partitions(name, count, leaders))
            except TopicError as error:
                return _not_grown(name, error.code, error.text)
        return _Grown(name=name, error_code=ErrorCode.NONE)

    # -- deletion --------------------------------------------------------------------------------

    async def delete_topics(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer DeleteTopics, by name or by id."""
        assert isinstance(request, DeleteTopicsRequest), "the dispatcher selects by API"
        asked: Iterable[_AskedDeletion]
        if context.api_version >= BY_ID_VERSION:
            asked = [_AskedDeletion(each.name, each.topic_id) for each in request.topics]
        else:
            asked = [_AskedDeletion(name, None) for name in request.topic_names]
        works: list[Awaitable[_Deleted]] = []
        deleted: list[TopicRecord] = []
        for each, count in Counter(asked).items():
            if count > 1:
                text = "the topic is named more than once"
                works.append(_immediate(_not_deleted(each, ErrorCode.INVALID_REQUEST, text)))
            else:
                works.append(self._delete(each, deleted))
        answers = await _gather_bounded(works)
        await self._wait_until_shown(deleted)
        return DeleteTopicsResponse(throttle_time_ms=0, responses=answers)

    async def _wait_until_shown(self, records: Sequence[TopicRecord]) -> None:
        """Wait until the other brokers show the changes too."""
        if self._spreading is not None:
            await self._spreading.wait(records)

    async def _delete(self, asked: _AskedDeletion, deleted: list[TopicRecord]) -> _Deleted:
        topic_id = asked.topic_id if asked.topic_id else None
        has_id = topic_id is not None and topic_id.int != 0
        if (asked.name is not None) == has_id:
            return _not_deleted(asked, ErrorCode.INVALID_REQUEST, "give either a name or an id")
        name = asked.name
        if name is None:
            name = self._view.topic_name_of(topic_id.bytes) if topic_id is not None else None
            if name is None:
                return _not_deleted(asked, ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        try:
            record = await self._changes.delete(name)
        except TopicError as error:
            return _not_deleted(replace(asked, name=name), error.code, error.text)
        deleted.append(record)
        return _Deleted(
            name=name, topic_id=UUID(bytes=bytes(record.topic_id)), error_code=ErrorCode.NONE
        )


def _wanted(topic: _Creatable) -> NewTopic:
    """Return the topic that CreateTopics requests. Raises TopicError."""
    configs: dict[str, str] = {}
    for each in topic.configs:
        if each.value is None:
            raise TopicError(
                ErrorCode.INVALID_CONFIG,
                f"{each.name} has no value: give one, or leave the setting out",
            )
        configs[each.name] = each.value
    if not topic.assignments:
        return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, configs=configs)
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        text = "with assignments, the number of partitions and the replication factor must be -1"
        raise TopicError(ErrorCode.INVALID_REQUEST, text)
    rows = sorted(topic.assignments, key=lambda each: each.partition_index)
    if [each.partition_index for each in rows] != list(range(len(rows))):
        text = "assignments must name each partition from 0 on exactly once"
        raise TopicError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, text)
    brokers = [each.broker_ids for each in rows]
    leaders = _first_brokers(brokers)
    return NewTopic(topic.name, -1, len(brokers[0]), leaders, configs)


def _first_brokers(assigned: Sequence[Sequence[int]]) -> list[int]:
    """Return the first broker of each list. Raises TopicError if the lists differ in length."""
    text = ""
    if not all(assigned):
        text = "an assignment names no broker: name at least one for each partition"
    elif any(len(brokers) != len(assigned[0]) for brokers in assigned):
        text = "the assignments of a topic must all have the same number of brokers"
    elif any(len(dict.fromkeys(brokers)) != len(brokers) for brokers in assigned):
        text = "an assignment names a broker twice: name each broker once"
    if text:
        raise TopicError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, text)
    return [brokers[0] for brokers in assigned]


def _not_created(name: str, code: ErrorCode, text: str) -> _Created:
    return _Created(
        name=name,
        topic_id=UUID(int=0),
        error_code=code,
        error_message=text,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def _not_grown(name: str, code: ErrorCode, text: str) -> _Grown:
    return _Grown(name=name, error_code=code, error_message=text)


def _not_deleted(asked: _AskedDeletion, code: ErrorCode, text: str) -> _Deleted:
    topic_id = asked.topic_id or UUID(int=0)
    return _Deleted(name=asked.name, topic_id=topic_id, error_code=code, error_message=text)


def _seconds(timeout_ms: int) -> float:
    return min(max(timeout_ms, 0) / 1000, TIMEOUT_S_MAX)


async def _immediate(answer: AnswerT) -> AnswerT:
    return answer


async def _gather_bounded(works: Iterable[Awaitable[AnswerT]]) -> list[AnswerT]:
    """Return the results in order; at most CHANGES_AT_ONCE_MAX run at the same time."""
    waiting, answers, turns = enumerate(works), dict[int, AnswerT](), Turns()

    async def work_off() -> None:
        for number, work in waiting:
            answers[number] = await work
            await turns.pass_on()

    await asyncio.gather(*[work_off() for _ in range(CHANGES_AT_ONCE_MAX)])
    return [answers[number] for number in sorted(answers)]

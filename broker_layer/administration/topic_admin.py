"""Handlers of CreateTopics, DeleteTopics and CreatePartitions, and the quota of changes of topics.

Leaves the changes to `topic_changes.py`, waiting for other brokers to `spreading.py`, settings to
`config_admin.py`, leaders to `leader_elections.py`, and the pause that an answer contains to
`dispatch`.

A manual assignment is a list of brokers for each partition. Here a broker leads and bookies
replicate. So the first broker of a list becomes the preferred leader, and the length of the lists
becomes the replication factor.

Invariants: each topic of a request has its own answer; a topic that is named twice is refused; with
`validate_only` nothing is stored; a request adds at most NEW_PARTITIONS_MAX partitions, and what is
over is refused.

Source: KIP-4, KIP-195, KIP-464 (defaults by -1), KIP-516 (topic ids), KIP-525 (configs in answers),
KIP-599 (quota).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from uuid import UUID

from broker_layer.administration.shown_configs import topic_rows
from broker_layer.administration.spreading import TopicSpreading
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.topic_changes import NewTopic, TopicChanges
from broker_layer.errors import TopicError
from broker_layer.handlers import Handler, RequestContext, Turns, answer
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    note_throttle,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.log.topic_configs import replication_factor
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey
from metadata.security.rates.rate_quota import RateQuota
from metadata.topics.topic import PARTITIONS_MAX, TopicRecord
from metadata.topics.topic_names import alike

BURST_S: Final = 10.0
"""A client that was idle may make the changes of this many seconds at once, as in Kafka."""
STRICT_FROM: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
"""First versions whose clients know THROTTLING_QUOTA_EXCEEDED."""
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

    def answer(self, error: TopicError | None = None) -> _Deleted:
        """Return the row of an answer."""
        return answer(_Deleted, error, name=self.name, topic_id=self.topic_id)


def _asked_deletions(request: DeleteTopicsRequest, version: int) -> list[_AskedDeletion]:
    if version < BY_ID_VERSION:
        return [_AskedDeletion(name, None) for name in request.topic_names]
    return [_AskedDeletion(topic.name, topic.topic_id) for topic in request.topics]


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


@dataclass(eq=False, repr=False)
class TopicAdmin:
    """Handlers for changes of topics. Any broker may receive the requests."""

    _view: ClusterView
    _changes: TopicChanges
    _config: ControlConfig
    _spreading: TopicSpreading | None

    # -- creation --------------------------------------------------------------------------------

    async def create_topics(self, request: CreateTopicsRequest, _: RequestContext) -> ApiMessage:
        """Answer CreateTopics."""
        counts = Counter(topic.name for topic in request.topics)
        loads = self._changes.loads()
        timeout_s = None if request.validate_only else _seconds(request.timeout_ms)
        stored: list[TopicRecord] = []
        works: list[_Created | Awaitable[_Created]] = []
        names, turns, room = dict[str, str](), Turns(), _Room()
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
                works.append(answer(_Created, error, name=topic.name))
            else:
                names[alike(topic.name)] = topic.name
                works.append(self._create(record, timeout_s, stored))
        answers = [*_repeated(_Created, counts), *await _gather_bounded(works)]
        await self._wait_until_shown(stored)
        return CreateTopicsResponse(topics=answers)

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
                return answer(_Created, error, name=record.name)
            stored.append(record)
        return self._created(record)

    def _created(self, record: TopicRecord) -> _Created:
        defaults = self._config.topic_defaults
        return answer(
            _Created,
            name=record.name,
            topic_id=UUID(bytes=bytes(record.topic_id)),
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

    async def create_partitions(
        self, request: CreatePartitionsRequest, _: RequestContext
    ) -> ApiMessage:
        """Answer CreatePartitions."""
        loads = self._changes.loads()
        stored: list[TopicRecord] = []
        works: list[_Grown | Awaitable[_Grown]] = []
        counts, turns, room = Counter(topic.name for topic in request.topics), Turns(), _Room()
        for topic in request.topics:
            if counts[topic.name] > 1:
                continue
            await turns.pass_on()
            try:
                leaders = None
                if topic.assignments is not None:
                    leaders = _first_brokers([row.broker_ids for row in topic.assignments])
                room.check(topic.count - self._view.partition_count(topic.name))
                planned = self._changes.plan_partitions(topic.name, topic.count, leaders, loads)
                room.take(len(planned))
            except TopicError as error:
                works.append(answer(_Grown, error, name=topic.name))
            else:
                planned = [] if request.validate_only else planned
                works.append(self._grow(topic.name, topic.count, planned, stored))
        answers = [*_repeated(_Grown, counts), *await _gather_bounded(works)]
        await self._wait_until_shown(stored)
        return CreatePartitionsResponse(results=answers)

    async def _grow(
        self, name: str, count: int, leaders: Sequence[int], stored: list[TopicRecord]
    ) -> _Grown:
        """Add planned partitions, if there are any; return the topic's answer."""
        if leaders:
            try:
                stored.append(await self._changes.add_partitions(name, count, leaders))
            except TopicError as error:
                return answer(_Grown, error, name=name)
        return answer(_Grown, name=name)

    # -- deletion --------------------------------------------------------------------------------

    async def delete_topics(
        self, request: DeleteTopicsRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer DeleteTopics, by name or by id."""
        works: list[_Deleted | Awaitable[_Deleted]] = []
        deleted: list[TopicRecord] = []
        for deletion, count in Counter(_asked_deletions(request, context.api_version)).items():
            if count > 1:
                error = TopicError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
                works.append(deletion.answer(error))
            else:
                works.append(self._delete(deletion, deleted))
        answers = await _gather_bounded(works)
        await self._wait_until_shown(deleted)
        return DeleteTopicsResponse(responses=answers)

    async def _wait_until_shown(self, records: Sequence[TopicRecord]) -> None:
        """Wait until the other brokers show the changes too."""
        if self._spreading is not None:
            await self._spreading.wait(records)

    async def _delete(self, asked: _AskedDeletion, deleted: list[TopicRecord]) -> _Deleted:
        name, topic_id = asked.name, asked.topic_id
        has_id = topic_id is not None and topic_id.int != 0
        try:
            if (name is not None) == has_id:
                raise TopicError(ErrorCode.INVALID_REQUEST, "give either a name or an id")
            if name is None and topic_id is not None:
                name = self._view.topic_name_of(topic_id.bytes)
            if name is None:
                raise TopicError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            record = await self._changes.delete(name)
        except TopicError as error:
            return replace(asked, name=name).answer(error)
        deleted.append(record)
        return _AskedDeletion(name, UUID(bytes=bytes(record.topic_id))).answer()


def _wanted(topic: _Creatable) -> NewTopic:
    """Return the topic that CreateTopics requests. Raises TopicError."""
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise TopicError(
                ErrorCode.INVALID_CONFIG,
                f"{config.name} has no value: give one, or leave the setting out",
            )
        configs[config.name] = config.value
    if not topic.assignments:
        return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, configs=configs)
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        text = "with assignments, the number of partitions and the replication factor must be -1"
        raise TopicError(ErrorCode.INVALID_REQUEST, text)
    rows = sorted(topic.assignments, key=lambda row: row.partition_index)
    if [row.partition_index for row in rows] != list(range(len(rows))):
        text = "assignments must name each partition from 0 on exactly once"
        raise TopicError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, text)
    brokers = [row.broker_ids for row in rows]
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


def _repeated(kind: Callable[..., AnswerT], counts: Mapping[str, int]) -> list[AnswerT]:
    """Return the rows of topics that are named more than once: one for each name."""
    return [
        answer(
            kind,
            TopicError(ErrorCode.INVALID_REQUEST, f"{name!r} is named more than once"),
            name=name,
        )
        for name, count in counts.items()
        if count > 1
    ]


def _seconds(timeout_ms: int) -> float:
    return min(max(timeout_ms, 0) / 1000, TIMEOUT_S_MAX)


async def _gather_bounded(works: Iterable[AnswerT | Awaitable[AnswerT]]) -> list[AnswerT]:
    """Return the results in order; at most CHANGES_AT_ONCE_MAX run at the same time."""
    waiting, answers, turns = enumerate(works), dict[int, AnswerT](), Turns()

    async def work_off() -> None:
        for number, work in waiting:
            answers[number] = await work if isinstance(work, Awaitable) else work
            await turns.pass_on()

    await asyncio.gather(*[work_off() for _ in range(CHANGES_AT_ONCE_MAX)])
    return [answers[number] for number in sorted(answers)]


USED_UP: Final = TopicError(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    "the quota controller_mutation_rate is used up: send the request again after throttle_time_ms",
)


@dataclass(slots=True, eq=False, repr=False)
class MutationQuota:
    """Quota of changes of topics: partitions that a client creates and deletes in a second.

    A client that has used its quota is refused with THROTTLING_QUOTA_EXCEEDED, in the versions of
    the requests whose clients know this error; in older versions it is served. In both cases it is
    paused. A request within the quota is not, also if it uses up the quota, except in the older
    versions.

    Only changes that are done are counted, and a validation changes nothing. A client that is
    within its quota may exceed it once, with one request. So what its running requests may change
    counts until they have ended.
    """

    _view: ClusterView
    _quotas: QuotaSet
    _now: Callable[[], float]
    _default_partitions: int
    _running: Counter[Hashable] = field(default_factory=Counter, init=False)
    """Partitions that running requests may change, by what they are counted under."""

    def limited(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return handlers of changes of topics, of which each counts what it does."""
        quota = RateQuota(self._quotas, QuotaKey.CONTROLLER_MUTATION_RATE, burst_s=BURST_S)
        return {key: self._limited(key, handler, quota) for key, handler in handlers.items()}

    def _limited(self, key: int, handler: Handler, quota: RateQuota) -> Handler:
        async def handle(request: ApiMessage, context: RequestContext) -> ApiMessage | bytes:
            if not quota.is_limited:
                return await handler(request, context)
            user, client_id = context.principal.name, context.client_id
            bucket = quota.bucket_of(user, client_id)
            throttle_s = quota.pause_s(user, client_id, self._running[bucket], self._now())
            is_strict = context.api_version >= STRICT_FROM[key]
            if throttle_s and is_strict:
                response = _refusal(request, context.api_version)
            else:
                before = self._counts_before(request)
                most = self._most_changed(request, before)
                self._running[bucket] += most
                try:
                    served = await handler(request, context)
                finally:
                    self._running -= Counter({bucket: most})
                assert not isinstance(served, bytes), "these handlers return messages"
                response, count = served, _changed_count(request, served, before)
                owed_s = quota.record(user, client_id, count, self._now())
                throttle_s = 0.0 if is_strict else owed_s
            note_throttle(response, throttle_s)
            return response

        return handle

    def _counts_before(self, request: ApiMessage) -> dict[str, int]:
        """Return how many partitions the topics of a request have now."""
        names: Iterable[str | None] = ()
        if isinstance(request, CreatePartitionsRequest):
            names = [topic.name for topic in request.topics]
        elif isinstance(request, DeleteTopicsRequest):
            by_id = [topic.topic_id for topic in request.topics if topic.topic_id is not None]
            names = [
                *(topic.name for topic in request.topics),
                *request.topic_names,
                *(self._view.topic_name_of(d.bytes) for d in by_id),
            ]
        return {name: self._view.partition_count(name) for name in names if name is not None}

    def _most_changed(self, request: ApiMessage, before: Mapping[str, int]) -> int:
        """Return how many partitions a request may create or delete."""
        counts: Iterable[int] = before.values()
        if isinstance(request, CreateTopicsRequest):
            counts = () if request.validate_only else map(self._wanted_count, request.topics)
        elif isinstance(request, CreatePartitionsRequest):
            wanted = () if request.validate_only else request.topics
            counts = (topic.count - before.get(topic.name, 0) for topic in wanted)
        return sum(min(max(0, count), PARTITIONS_MAX) for count in counts)

    def _wanted_count(self, topic: CreateTopicsRequest.CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return self._default_partitions if topic.num_partitions == -1 else topic.num_partitions


def _changed_count(request: ApiMessage, response: Any, before: Mapping[str, int]) -> int:
    """Return how many partitions a request has created or deleted."""
    match request:
        case CreateTopicsRequest(validate_only=False):
            return sum(topic.num_partitions for topic in response.topics if not topic.error_code)
        case CreatePartitionsRequest(validate_only=False):
            done = {result.name: None for result in response.results if not result.error_code}
            grown = (topic for topic in request.topics if topic.name in done)
            return sum(max(0, topic.count - before.get(topic.name, 0)) for topic in grown)
        case DeleteTopicsRequest():
            done = {row.name: None for row in response.responses if not row.error_code}
            return sum(before.get(name, 0) for name in done if name is not None)
        case _:
            return 0


def _refusal(request: ApiMessage, version: int) -> ApiMessage:
    """Return the answer that refuses every topic of a request."""
    match request:
        case CreateTopicsRequest():
            created = [answer(_Created, USED_UP, name=topic.name) for topic in request.topics]
            return CreateTopicsResponse(topics=created)
        case CreatePartitionsRequest():
            grown = [answer(_Grown, USED_UP, name=topic.name) for topic in request.topics]
            return CreatePartitionsResponse(results=grown)
        case DeleteTopicsRequest():
            deleted = [deletion.answer(USED_UP) for deletion in _asked_deletions(request, version)]
            return DeleteTopicsResponse(responses=deleted)
        case _:
            raise AssertionError("the handlers of changes of topics are wrapped")

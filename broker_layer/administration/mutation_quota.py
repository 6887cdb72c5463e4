"""Quota of changes of topics: partitions that a client creates and deletes in a second.

Leaves the changes to `topic_admin`, the quotas to `metadata.security.rates`, and the pause that
an answer contains to `dispatch`.

A client that has used its quota is refused with THROTTLING_QUOTA_EXCEEDED, in the versions of the
requests whose clients know this error; in older versions it is served. In both cases it is paused.
A request within the quota is not, also if it uses up the quota, except in the older versions.

Invariants: only changes that are done are counted, and a validation changes nothing; a client that
is within its quota may exceed it once, with one request. So what its running requests may change
counts until they have ended.

Source: KIP-599.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker_layer.administration.topic_admin import BY_ID_VERSION
from broker_layer.control.cluster_view import ClusterView
from broker_layer.handlers import Handler, RequestContext
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
from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import QuotaKey
from metadata.security.rates.rate_quota import RateQuota
from metadata.topics.topic import PARTITIONS_MAX

BURST_S: Final = 10.0
"""A client that was idle may make the changes of this many seconds at once, as in Kafka."""
STRICT_FROM: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
"""First versions whose clients know THROTTLING_QUOTA_EXCEEDED."""

_CODE: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_TEXT: Final = (
    "the quota controller_mutation_rate is used up: send the request again after throttle_time_ms"
)
_Created = CreateTopicsResponse.CreatableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult


class _Row(Protocol):
    """The answer about one topic."""

    @property
    def name(self) -> str | None:
        """The topic."""

    @property
    def error_code(self) -> int:
        """0 if its change was done."""


@dataclass(slots=True, eq=False, repr=False)
class MutationQuota:
    """Counts the changes of topics of the clients of one broker."""

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
                answer = _refusal(request, context.api_version)
            else:
                before = self._counts_before(request)
                most = self._most_changed(request, before)
                self._running[bucket] += most
                try:
                    served = await handler(request, context)
                finally:
                    self._running -= Counter({bucket: most})
                assert not isinstance(served, bytes), "these handlers return messages"
                answer, count = served, _changed_count(request, served, before)
                owed_s = quota.record(user, client_id, count, self._now())
                throttle_s = 0.0 if is_strict else owed_s
            note_throttle(answer, throttle_s)
            return answer

        return handle

    def _counts_before(self, request: ApiMessage) -> dict[str, int]:
        """Return how many partitions the topics of a request have now."""
        names: Iterable[str | None] = ()
        if isinstance(request, CreatePartitionsRequest):
            names = [each.name for each in request.topics]
        elif isinstance(request, DeleteTopicsRequest):
            by_id = [each.topic_id for each in request.topics if each.topic_id is not None]
            names = [
                *(each.name for each in request.topics),
                *request.topic_names,
                *(self._view.topic_name_of(each.bytes) for each in by_id),
            ]
        return {name: self._view.partition_count(name) for name in names if name is not None}

    def _most_changed(self, request: ApiMessage, before: Mapping[str, int]) -> int:
        """Return how many partitions a request may create or delete."""
        counts: Iterable[int] = before.values()
        if isinstance(request, CreateTopicsRequest):
            counts = () if request.validate_only else map(self._wanted_count, request.topics)
        elif isinstance(request, CreatePartitionsRequest):
            wanted = () if request.validate_only else request.topics
            counts = (each.count - before.get(each.name, 0) for each in wanted)
        return sum(min(max(0, each), PARTITIONS_MAX) for each in counts)

    def _wanted_count(self, topic: CreateTopicsRequest.CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return self._default_partitions if topic.num_partitions == -1 else topic.num_partitions


def _changed_count(request: ApiMessage, answer: ApiMessage, before: Mapping[str, int]) -> int:
    """Return how many partitions a request has created or deleted."""
    match request, answer:
        case CreateTopicsRequest(), CreateTopicsResponse():
            if request.validate_only:
                return 0
            return sum(each.num_partitions for each in answer.topics if not each.error_code)
        case CreatePartitionsRequest(), CreatePartitionsResponse():
            if request.validate_only:
                return 0
            wanted = {each.name: each.count for each in request.topics}
            done = _done(answer.results)
            return sum(max(0, wanted[name] - before.get(name, 0)) for name in done)
        case DeleteTopicsRequest(), DeleteTopicsResponse():
            return sum(before.get(name, 0) for name in _done(answer.responses))
        case _:
            raise AssertionError("the handlers of changes of topics are wrapped")


def _done(rows: Iterable[_Row]) -> list[str]:
    return [each.name for each in rows if not each.error_code and each.name is not None]


def _refusal(request: ApiMessage, version: int) -> ApiMessage:
    """Return the answer that refuses every topic of a request."""
    match request:
        case CreateTopicsRequest():
            created = [
                _Created(name=each.name, error_code=_CODE, error_message=_TEXT)
                for each in request.topics
            ]
            return CreateTopicsResponse(topics=created)
        case CreatePartitionsRequest():
            grown = [
                _Grown(name=each.name, error_code=_CODE, error_message=_TEXT)
                for each in request.topics
            ]
            return CreatePartitionsResponse(results=grown)
        case DeleteTopicsRequest():
            return DeleteTopicsResponse(responses=_not_deleted(request, version))
        case _:
            raise AssertionError("the handlers of changes of topics are wrapped")


def _not_deleted(request: DeleteTopicsRequest, version: int) -> list[_Deleted]:
    if version < BY_ID_VERSION:
        return [
            _Deleted(name=name, error_code=_CODE, error_message=_TEXT)
            for name in request.topic_names
        ]
    return [
        _Deleted(name=each.name, topic_id=each.topic_id, error_code=_CODE, error_message=_TEXT)
        for each in request.topics
    ]

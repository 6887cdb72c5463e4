"""Guards of Kafka's APIs: what a request needs, and what a refused part of it answers.

`GUARDS` has the guard of each API, `UNGUARDED` the APIs without one, with the reason. A guard is
put together from needs, the rights on what a request or an element of it names, and from rows, the
refusals of single elements. Names of fields are those of Kafka's messages.

Invariants: with an authorizer, an API without a guard and without a reason is not served; what is
refused does not reach the handler; the name of a topic is not returned to a client that gave only
its id and may not describe it.

Source: KIP-11, KIP-98, KIP-133, KIP-339, KIP-679, KIP-709; Kafka's KafkaApis.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from uuid import UUID

from broker_layer.errors import TopicError
from broker_layer.handlers import Handler, RequestContext, answer
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ApiMessage, response_class
from broker_layer.kafka.versions import BROKERS_ASK_FROM, ApiKey
from broker_layer.security.authorizer import (
    NOT_AUTHORIZED,
    REFUSALS,
    Authorizer,
    Rights,
    creates_topic,
    may_on_cluster,
    sees_topic,
)
from metadata.security.acls import CLUSTER_NAME, Operation, ResourceType

TOPIC_SETTINGS: Final = 2
GROUP_SETTINGS: Final = 32
"""Kafka's numbers of the kinds of resources whose settings need a right on the resource."""

_NULLABLE_PROTOCOL_VERSION: Final = 7
"""First version of JoinGroup in which the name of the protocol can be null."""
_MANY_COORDINATORS_VERSION: Final = 4
"""First version of FindCoordinator that can request several keys."""
_BY_ID_VERSION: Final = 6
"""First version of DeleteTopics that accepts ids as well as names."""
_GROUP_ERROR_VERSION: Final = 2
_MANY_GROUPS_VERSION: Final = 8
"""First versions of OffsetFetch with an error of the group, and with several groups."""

# Messages are built from schemas when they are imported, and a table reads them by field names.
Message = Any


class TopicIds(Protocol):
    """Lookup of topics by their ids."""

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""


# -- parts of guards -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """One request, the rights of its client, and the handler behind the guard."""

    key: ApiKey
    request: Message
    context: RequestContext
    rights: Rights
    topic_ids: TopicIds
    handler: Handler

    @property
    def answer_class(self) -> Message:
        """Class of the answers of this API."""
        return response_class(self.key)

    async def serve(self) -> Message:
        """Return the handler's answer."""
        response = await self.handler(self.request, self.context)
        assert isinstance(response, self.answer_class), "the handler answers its own API"
        return response

    def refuse(self, code: ErrorCode, **fields: object) -> Message:
        """Return an answer that refuses the request as a whole."""
        return answer(self.answer_class, _refusal(code), **fields)


Guard = Callable[[GuardedCall], Awaitable[Message]]
"""Returns the answer to a request: the handler's, or a refusal."""
Requirement = Callable[[Rights, Message], ErrorCode]
"""Returns the error for a request, or for an element of one, if a right to it is missing."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How elements of a request become rows of refusals in the answer."""

    asked: str
    """List of the request, or of an element of it."""

    keys: tuple[str, ...]
    """Fields that a row has from its element. An element can be the key itself."""

    answered: str = ""
    """List of the answer; empty if it has the name of the request's list."""

    blank: Mapping[str, object] = field(default_factory=dict)
    """Fields of a refused row whose defaults in Kafka's schema are others."""

    parts: "Rows | None" = None
    """Rows of the parts of an element: of the partitions of a topic."""

    @property
    def answer_list(self) -> str:
        """List of the answer."""
        return self.answered or self.asked

    def elements(self, asked: Message) -> Iterable[Message]:
        """Return the elements of a request."""
        return getattr(asked, self.asked) or ()

    def refused(
        self, answer: Message, elements: Iterable[Message], code: ErrorCode
    ) -> list[Message]:
        """Return the rows of elements in a class of answers."""
        kind = answer.fields[self.answer_list].data_class
        return [self._row(kind, element, code) for element in elements]

    def _row(self, kind: Message, element: Message, code: ErrorCode) -> Message:
        is_key = isinstance(element, str | int)
        fields = {key: element if is_key else getattr(element, key) for key in self.keys}
        if self.parts is not None:
            rows = self.parts.refused(kind, self.parts.elements(element), code)
            fields[self.parts.answer_list] = rows
        return answer(kind, _refusal(code), **{**fields, **self.blank})


def _refusal(code: ErrorCode) -> TopicError:
    return TopicError(code, NOT_AUTHORIZED)


def on(operation: Operation, kind: ResourceType, named: str) -> Requirement:
    """Need a right on the resource that a field names, or that an element is the name of."""

    def missing(rights: Rights, asked: Message) -> ErrorCode:
        name = asked if isinstance(asked, str) else getattr(asked, named)
        return ErrorCode.NONE if rights.check(operation, kind, name) else REFUSALS[kind]

    return missing


def on_cluster(operation: Operation) -> Requirement:
    """Need a right on the cluster."""

    def missing(rights: Rights, _: Message) -> ErrorCode:
        is_allowed = may_on_cluster(rights, operation)
        return ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    return missing


def whole(
    *needs: Requirement, rows: Rows | None = None, then: Guard = GuardedCall.serve, **blank: object
) -> Guard:
    """Refuse a request as a whole for the first need that is not met, with the fields of `blank`,
    and with a row for each element if `rows` is given.
    """

    async def guard(call: GuardedCall) -> Message:
        for need in needs:
            code = need(call.rights, call.request)
            if code is ErrorCode.NONE:
                continue
            refusal = call.refuse(code, **blank)
            if rows is not None:
                elements = rows.elements(call.request)
                setattr(refusal, rows.answer_list, rows.refused(call.answer_class, elements, code))
            return refusal
        return await then(call)

    return guard


def each(
    need: Requirement, rows: Rows, *, is_once: bool = False, serves_none: bool = True
) -> Guard:
    """Refuse the elements of a request for which a need is not met; serve the others.

    With `is_once`, an element that the request has twice has one row. Without `serves_none`, the
    handler is not called if all elements are refused.
    """

    async def guard(call: GuardedCall) -> Message:
        allowed: list[Message] = []
        refused: list[Message] = []
        keys: set[str] = set()
        for element in rows.elements(call.request):
            code = need(call.rights, element)
            if code is ErrorCode.NONE:
                allowed.append(element)
                continue
            key = element if isinstance(element, str) else getattr(element, rows.keys[0])
            if not (is_once and key in keys):
                refused += rows.refused(call.answer_class, [element], code)
            keys.add(key)
        setattr(call.request, rows.asked, allowed)
        if refused and not (allowed or serves_none):
            return call.answer_class(**{rows.answer_list: refused})
        response = await call.serve()
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NONE:
            served = getattr(response, rows.answer_list)
            setattr(response, rows.answer_list, [*served, *refused])
        return response

    return guard


# -- needs and rows that several APIs share ------------------------------------------------------

_SEES_TOPIC: Final = on(Operation.DESCRIBE, ResourceType.TOPIC, "name")
_READS_TOPIC: Final = on(Operation.READ, ResourceType.TOPIC, "name")
_READS_GROUP: Final = on(Operation.READ, ResourceType.GROUP, "group_id")
_SEES_GROUP: Final = on(Operation.DESCRIBE, ResourceType.GROUP, "group_id")
_WRITES_TXN: Final = on(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")

_INDEXES: Final = Rows("partitions", ("partition_index",))
_COMMITTED: Final = Rows("topics", ("name",), parts=_INDEXES)
_FETCHED: Final = Rows(
    "topics",
    ("name",),
    parts=Rows(
        "partition_indexes",
        ("partition_index",),
        "partitions",
        {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""},
    ),
)
_DELETED: Final = Rows("topic_names", ("name",), "responses", {"topic_id": UUID(int=0)})
_ADDED: Final = Rows(
    "v3_and_below_topics",
    ("name",),
    "results_by_topic_v3_and_below",
    parts=Rows("partitions", ("partition_index",), "results_by_partition"),
)
_SETTINGS: Final = ("resource_type", "resource_name")


def _settings(operation: Operation) -> Requirement:
    """Need a right on the topic or group whose settings an element names, else on the cluster."""

    def missing(rights: Rights, asked: Message) -> ErrorCode:
        kind, name = ResourceType.CLUSTER, CLUSTER_NAME
        if asked.resource_type == TOPIC_SETTINGS:
            kind, name = ResourceType.TOPIC, asked.resource_name
        elif asked.resource_type == GROUP_SETTINGS:
            kind, name = ResourceType.GROUP, asked.resource_name
        return ErrorCode.NONE if rights.check(operation, kind, name) else REFUSALS[kind]

    return missing


def _creates(rights: Rights, topic: Message) -> ErrorCode:
    is_allowed = creates_topic(rights, topic.name)
    return ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _sees_all(rights: Rights, topics: Iterable[str]) -> ErrorCode:
    """Need the right to describe each topic, up to the first that is missing."""
    codes = (_SEES_TOPIC(rights, name) for name in topics)
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


def _sees_subscribed(rights: Rights, request: Message) -> ErrorCode:
    return _sees_all(rights, request.subscribed_topic_names or ())


def _produces(rights: Rights, request: Message) -> ErrorCode:
    """Need a right on the transactional id; without one, to produce to some topic."""
    if request.transactional_id is not None:
        return _WRITES_TXN(rights, request)
    if rights.may_any(Operation.WRITE, ResourceType.TOPIC):
        return ErrorCode.NONE
    return on_cluster(Operation.IDEMPOTENT_WRITE)(rights, request)


def _writes_markers(rights: Rights, request: Message) -> ErrorCode:
    """Need the right of a broker, or of an administrator who ends transactions."""
    if rights.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return ErrorCode.NONE
    return on_cluster(Operation.CLUSTER_ACTION)(rights, request)


# -- guards that no table row can express --------------------------------------------------------


async def _join_group(call: GuardedCall) -> Message:
    has_null = call.context.api_version >= _NULLABLE_PROTOCOL_VERSION
    name = None if has_null else ""
    guard = whole(_READS_GROUP, generation_id=-1, protocol_type=None, protocol_name=name)
    return await guard(call)


async def _describe_consumer_groups(call: GuardedCall) -> Message:
    """Also the topics of the members must be visible."""
    rows = Rows("group_ids", ("group_id",), "groups")
    response = await each(_SEES_GROUP, rows)(call)
    kind, groups = type(response), []
    for group in response.groups:
        topics = dict.fromkeys(
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        )
        code = _sees_all(call.rights, topics)
        is_seen = code is ErrorCode.NONE
        groups += [group] if is_seen else rows.refused(kind, [group.group_id], code)
    response.groups = groups
    return response


async def _list_groups(call: GuardedCall) -> Message:
    """Leave out groups that the client may not describe."""
    response, may = await call.serve(), call.rights.may
    if not may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        response.groups = [
            group
            for group in response.groups
            if may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    return response


async def _list_transactions(call: GuardedCall) -> Message:
    """Leave out transactions that the client may not describe."""
    response, kind = await call.serve(), ResourceType.TRANSACTIONAL_ID
    response.transaction_states = [
        state
        for state in response.transaction_states
        if call.rights.may(Operation.DESCRIBE, kind, state.transactional_id)
    ]
    return response


async def _describe_transactions(call: GuardedCall) -> Message:
    """Leave out topics that the client may not see."""
    need = on(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
    rows = Rows("transactional_ids", ("transactional_id",), "transaction_states")
    response = await each(need, rows, is_once=True)(call)
    for state in response.transaction_states:
        state.topics = [topic for topic in state.topics if sees_topic(call.rights, topic.topic)]
    return response


async def _create_topics(call: GuardedCall) -> Message:
    """Show the settings of new topics only with the right to describe them."""
    blank = {"topic_id": UUID(int=0), "num_partitions": -1, "replication_factor": -1}
    response = await each(_creates, Rows("topics", ("name",), blank=blank), is_once=True)(call)
    for topic in response.topics:
        is_created = topic.error_code == ErrorCode.NONE
        settings = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
        if is_created and not call.rights.may(*settings):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions, topic.replication_factor, topic.configs = -1, -1, None
    return response


async def _delete_topics(call: GuardedCall) -> Message:
    """Topics are given by name or by id."""
    request = call.request
    if call.context.api_version < _BY_ID_VERSION:
        return await each(on(Operation.DELETE, ResourceType.TOPIC, "name"), _DELETED)(call)
    allowed, rows = [], []
    for asked in request.topics:
        row = _deletion_refusal(call, asked)
        if row is None:
            allowed.append(asked)
        else:
            rows.append(row)
    request.topics = allowed
    response = await call.serve()
    response.responses = [*response.responses, *rows]
    return response


def _deletion_refusal(call: GuardedCall, asked: Message) -> Message:
    """Return the row of a deletion that is refused, or None."""
    name, topic_id = asked.name, asked.topic_id
    kind = call.answer_class.fields[_DELETED.answer_list].data_class
    if name is None:
        # An id that this broker does not know yet is refused too: its handler could learn of it.
        name = None if topic_id is None else call.topic_ids.topic_name_of(topic_id.bytes)
        if name is None or not call.rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return kind(
                name=None,
                topic_id=topic_id or UUID(int=0),
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                error_message="no topic has this id",
            )
    if call.rights.check(Operation.DELETE, ResourceType.TOPIC, name):
        return None
    fields = {"name": name, "topic_id": topic_id or UUID(int=0)}
    return answer(kind, _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED), **fields)


async def _find_coordinator(call: GuardedCall) -> Message:
    """Need the right to describe the group or the transactional id."""
    version = call.context.api_version
    kinds = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
    kind = kinds.get(call.request.key_type if version > 0 else 0)
    if kind is None:
        return await call.serve()  # the handler refuses other kinds
    need = on(Operation.DESCRIBE, kind, "key")
    if version < _MANY_COORDINATORS_VERSION:
        return await whole(need, node_id=-1, port=-1)(call)
    rows = Rows("coordinator_keys", ("key",), "coordinators", {"node_id": -1, "port": -1})
    return await each(need, rows, serves_none=False)(call)


async def _add_partitions(call: GuardedCall) -> Message:
    """Add partitions only if the client may write to all of them. Brokers, which ask whether a
    transaction is open, have another right.
    """
    if call.context.api_version >= BROKERS_ASK_FROM:
        return await whole(on_cluster(Operation.CLUSTER_ACTION))(call)
    request, kind = call.request, call.answer_class
    topics = [*_ADDED.elements(request)]
    code = on(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id")(
        call.rights, request
    )
    if code is not ErrorCode.NONE:
        return kind(**{_ADDED.answer_list: _ADDED.refused(kind, topics, code)})
    writes = on(Operation.WRITE, ResourceType.TOPIC, "name")
    codes = [writes(call.rights, topic) for topic in topics]
    if not any(codes):
        return await call.serve()
    rows: list[Message] = []
    spared: list[Message] = []
    for topic, refused in zip(topics, codes, strict=True):
        row_code = refused or ErrorCode.OPERATION_NOT_ATTEMPTED
        (rows if refused else spared).extend(_ADDED.refused(kind, [topic], row_code))
    return kind(**{_ADDED.answer_list: [*rows, *spared]})


async def _offset_fetch(call: GuardedCall) -> Message:
    """Need the rights to describe the groups and the topics. An answer about all topics of a group
    leaves out topics that the client may not see.
    """
    version = call.context.api_version
    if version >= _MANY_GROUPS_VERSION:
        return await _fetch_groups(call)
    topics = _seen_offsets if call.request.topics is None else each(_SEES_TOPIC, _FETCHED)
    rows = None if version >= _GROUP_ERROR_VERSION else _FETCHED
    return await whole(_SEES_GROUP, rows=rows, then=topics)(call)


async def _seen_offsets(call: GuardedCall) -> Message:
    response = await call.serve()
    response.topics = [topic for topic in response.topics if sees_topic(call.rights, topic.name)]
    return response


async def _fetch_groups(call: GuardedCall) -> Message:
    groups = Rows("groups", ("group_id",))
    allowed: list[Message] = []
    refused: list[Message] = []
    refused_topics: list[list[Message] | None] = []
    for group in call.request.groups:
        code = _SEES_GROUP(call.rights, group)
        if code is not ErrorCode.NONE:
            refused += groups.refused(call.answer_class, [group], code)
            continue
        allowed.append(group)
        rest: list[Message] | None = None
        if group.topics is not None:
            seen = [(topic, _SEES_TOPIC(call.rights, topic)) for topic in group.topics]
            group.topics = [topic for topic, code in seen if code is ErrorCode.NONE]
            rest = [topic for topic, code in seen if code is not ErrorCode.NONE]
        refused_topics.append(rest)
    call.request.groups = allowed
    response = await call.serve()
    for shown, rest in zip(response.groups, refused_topics, strict=True):
        if rest is None:
            shown.topics = [topic for topic in shown.topics if sees_topic(call.rights, topic.name)]
        elif shown.error_code == ErrorCode.NONE:
            rows = _FETCHED.refused(type(shown), rest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            shown.topics = [*shown.topics, *rows]
    response.groups = [*response.groups, *refused]
    return response


async def _alter_users(call: GuardedCall) -> Message:
    """One row for each user, whose credentials can be both deleted and set."""
    code = on_cluster(Operation.ALTER)(call.rights, call.request)
    if code is ErrorCode.NONE:
        return await call.serve()
    changes = (*call.request.deletions, *call.request.upsertions)
    users = dict.fromkeys(change.name for change in changes)
    rows = Rows("", ("user",), "results").refused(call.answer_class, users, code)
    return call.answer_class(results=rows)


# -- the table -----------------------------------------------------------------------------------

GUARDS: Final[Mapping[ApiKey, Guard]] = {
    # topics and their records
    ApiKey.LIST_OFFSETS: each(_SEES_TOPIC, _COMMITTED),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: each(
        on(Operation.DESCRIBE, ResourceType.TOPIC, "topic"),
        Rows("topics", ("topic",), parts=Rows("partitions", ("partition",))),
    ),
    ApiKey.DELETE_RECORDS: each(
        on(Operation.DELETE, ResourceType.TOPIC, "name"),
        Rows(
            "topics",
            ("name",),
            parts=Rows("partitions", ("partition_index",), blank={"low_watermark": -1}),
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: each(
        _READS_TOPIC,
        Rows(
            "topics",
            ("name",),
            parts=Rows("partition_indexes", ("partition_index",), "partitions"),
        ),
    ),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.CREATE_PARTITIONS: each(
        on(Operation.ALTER, ResourceType.TOPIC, "name"),
        Rows("topics", ("name",), "results"),
        is_once=True,
    ),
    ApiKey.DELETE_TOPICS: _delete_topics,
    # groups and their offsets
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: whole(_READS_GROUP),
    ApiKey.HEARTBEAT: whole(_READS_GROUP),
    ApiKey.LEAVE_GROUP: whole(_READS_GROUP),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: whole(_READS_GROUP, _sees_subscribed, assignment=None),
    ApiKey.DESCRIBE_GROUPS: each(_SEES_GROUP, Rows("groups", ("group_id",))),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_consumer_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DELETE_GROUPS: each(
        on(Operation.DELETE, ResourceType.GROUP, "group_id"),
        Rows("groups_names", ("group_id",), "results"),
    ),
    ApiKey.OFFSET_COMMIT: whole(
        _READS_GROUP, rows=_COMMITTED, then=each(_READS_TOPIC, _COMMITTED, serves_none=False)
    ),
    ApiKey.OFFSET_DELETE: whole(
        on(Operation.DELETE, ResourceType.GROUP, "group_id"), then=each(_READS_TOPIC, _COMMITTED)
    ),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    # producers and transactions
    ApiKey.INIT_PRODUCER_ID: whole(_produces, producer_id=-1, producer_epoch=-1),
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: whole(_WRITES_TXN, _READS_GROUP),
    ApiKey.END_TXN: whole(_WRITES_TXN),
    ApiKey.TXN_OFFSET_COMMIT: whole(
        _WRITES_TXN,
        _READS_GROUP,
        rows=_COMMITTED,
        then=each(_READS_TOPIC, _COMMITTED, serves_none=False),
    ),
    ApiKey.WRITE_TXN_MARKERS: whole(
        _writes_markers,
        rows=Rows(
            "markers",
            ("producer_id",),
            parts=Rows(
                "topics",
                ("name",),
                parts=Rows("partition_indexes", ("partition_index",), "partitions"),
            ),
        ),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    # settings
    ApiKey.DESCRIBE_CONFIGS: each(
        _settings(Operation.DESCRIBE_CONFIGS), Rows("resources", _SETTINGS, "results")
    ),
    ApiKey.ALTER_CONFIGS: each(
        _settings(Operation.ALTER_CONFIGS), Rows("resources", _SETTINGS, "responses")
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: each(
        _settings(Operation.ALTER_CONFIGS), Rows("resources", _SETTINGS, "responses")
    ),
    ApiKey.LIST_CONFIG_RESOURCES: whole(on_cluster(Operation.DESCRIBE_CONFIGS)),
    # the cluster
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    # Before version 3 of DescribeLogDirs, a refusal is an empty answer.
    ApiKey.DESCRIBE_LOG_DIRS: whole(on_cluster(Operation.DESCRIBE)),
    # Version 0 of ElectLeaders has no error but that of each partition.
    ApiKey.ELECT_LEADERS: whole(
        on_cluster(Operation.ALTER),
        rows=Rows(
            "topic_partitions",
            ("topic",),
            "replica_election_results",
            parts=Rows("partitions", ("partition_id",), "partition_result"),
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: whole(on_cluster(Operation.ALTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: whole(on_cluster(Operation.DESCRIBE)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: whole(on_cluster(Operation.DESCRIBE_CONFIGS), entries=None),
    ApiKey.ALTER_CLIENT_QUOTAS: whole(
        on_cluster(Operation.ALTER_CONFIGS),
        rows=Rows("entries", (), parts=Rows("entity", ("entity_type", "entity_name"))),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: whole(on_cluster(Operation.DESCRIBE)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_users,
    ApiKey.DESCRIBE_ACLS: whole(on_cluster(Operation.DESCRIBE)),
    ApiKey.CREATE_ACLS: whole(on_cluster(Operation.ALTER), rows=Rows("creations", (), "results")),
    ApiKey.DELETE_ACLS: whole(
        on_cluster(Operation.ALTER), rows=Rows("filters", (), "filter_results")
    ),
}

UNGUARDED: Final[Mapping[ApiKey, str]] = {
    ApiKey.PRODUCE: "its service checks each topic before it waits or appends",
    ApiKey.FETCH: "its service checks each topic at each read, because sessions last",
    ApiKey.METADATA: "its handler checks each topic: the answer about all of them is shared",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "its handler checks each topic: the answer has pages",
    ApiKey.API_VERSIONS: "clients must know the versions before they can prove who they are",
    ApiKey.SASL_HANDSHAKE: "clients cannot have rights before they prove who they are",
    ApiKey.SASL_AUTHENTICATE: "clients cannot have rights before they prove who they are",
    ApiKey.DESCRIBE_CLUSTER: "each client needs the addresses of the brokers, as in Kafka",
}
"""APIs without a guard here, with the reason."""


def guarded(
    handlers: Mapping[int, Handler], authorizer: Authorizer, topic_ids: TopicIds
) -> dict[int, Handler]:
    """Return the handlers, each behind the guard of its API."""
    return {
        key: _guarded(ApiKey(key), handler, authorizer, topic_ids)
        for key, handler in handlers.items()
    }


def _guarded(key: ApiKey, handler: Handler, authorizer: Authorizer, topic_ids: TopicIds) -> Handler:
    guard = GUARDS.get(key)
    assert guard is not None or key in UNGUARDED, f"{key.shown} has no guard"

    async def handle(request: ApiMessage, context: RequestContext) -> ApiMessage | bytes:
        rights = authorizer.rights_of(context.principal, context.client_host, context.listener, key)
        context = replace(context, rights=rights)
        if guard is None:
            return await handler(request, context)
        answer = await guard(GuardedCall(key, request, context, rights, topic_ids, handler))
        assert isinstance(answer, ApiMessage), "an answer of its API"
        return answer

    return handle

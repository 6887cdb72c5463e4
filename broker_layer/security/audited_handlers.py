"""Audit lines about the requests that change a cluster: topics, settings, rights, groups, leaders.

Leaves users and quotas to `client_admin`, which knows more of them, and refusals for want of a
right to `authorizer`.

Invariants: each answer to such a request causes one line for each kind of result in it, with the
number of things and the first NAMES_MAX of their names; one that ends without an answer, because
the broker stops or fails, causes a line that says so; a request that only asks what would happen
causes none. Each API is either here, or in ELSEWHERE or ORDINARY with the reason.

Source: the fields of Apache Kafka's messages.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from broker_layer.handlers import Handler, RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ApiMessage
from broker_layer.kafka.versions import ApiKey
from quire.server.server_log import AuditLog

NAMES_MAX: Final = 20
NAME_CHARACTERS_MAX: Final = 249
REFUSALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Results that the authorizer has written already."""

# Messages are built from schemas when they are imported, so their fields have no types.
Message = Any
Changed = tuple[str, int]
"""Name of a thing, and the error code of its change."""
Changes = Callable[[Message, Message], Iterable[Changed]]
"""Returns the things that a request changed, or would have, from it and its answer."""


def _rows(answered: str, name: str) -> Changes:
    """Return the changes in an answer with one row for each thing."""

    def changes(_: Message, answer: Message) -> Iterable[Changed]:
        return ((getattr(row, name), row.error_code) for row in getattr(answer, answered))

    return changes


def _parts(answered: str, name: str, parts: str, number: str) -> Changes:
    """Return the changes in an answer with a row for each partition of each topic."""

    def changes(_: Message, answer: Message) -> Iterable[Changed]:
        if getattr(answer, "error_code", ErrorCode.NONE):
            return (("all", answer.error_code),)
        return (
            (f"{getattr(topic, name)}-{getattr(part, number)}", part.error_code)
            for topic in getattr(answer, answered)
            for part in getattr(topic, parts)
        )

    return changes


def _deleted_topics(_: Message, answer: Message) -> Iterable[Changed]:
    return ((row.name or str(row.topic_id), row.error_code) for row in answer.responses)


def _offsets(request: Message, answer: Message) -> Iterable[Changed]:
    if answer.error_code:
        return ((request.group_id, answer.error_code),)
    places = _parts("topics", "name", "partitions", "partition_index")(request, answer)
    return ((f"{request.group_id} {place}", code) for place, code in places)


def _created_rules(request: Message, answer: Message) -> Iterable[Changed]:
    rules = zip(request.creations, answer.results, strict=True)
    return ((f"{rule.principal} {rule.resource_name}", result.error_code) for rule, result in rules)


def _deleted_rules(_: Message, answer: Message) -> Iterable[Changed]:
    for result in answer.filter_results:
        if result.error_code:
            yield "all", result.error_code
        for acl in result.matching_acls:
            yield f"{acl.principal} {acl.resource_name}", acl.error_code


AUDITED: Final[Mapping[ApiKey, Changes]] = MappingProxyType(
    {
        ApiKey.CREATE_TOPICS: _rows("topics", "name"),
        ApiKey.DELETE_TOPICS: _deleted_topics,
        ApiKey.DELETE_RECORDS: _parts("topics", "name", "partitions", "partition_index"),
        ApiKey.CREATE_PARTITIONS: _rows("results", "name"),
        ApiKey.ALTER_CONFIGS: _rows("responses", "resource_name"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _rows("responses", "resource_name"),
        ApiKey.DELETE_GROUPS: _rows("results", "group_id"),
        ApiKey.OFFSET_DELETE: _offsets,
        ApiKey.ELECT_LEADERS: _parts(
            "replica_election_results", "topic", "partition_result", "partition_id"
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _parts(
            "responses", "name", "partitions", "partition_index"
        ),
        ApiKey.CREATE_ACLS: _created_rules,
        ApiKey.DELETE_ACLS: _deleted_rules,
    }
)
"""APIs whose changes are written here."""
ELSEWHERE: Final[Mapping[ApiKey, str]] = MappingProxyType(
    {
        ApiKey.ALTER_CLIENT_QUOTAS: "its handler writes the values too",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "its handler writes the mechanism too",
        ApiKey.SASL_HANDSHAKE: "logins write refusals",
        ApiKey.SASL_AUTHENTICATE: "logins write refusals",
    }
)
"""APIs whose lines another part writes, with the reason."""
CHANGING: Final = frozenset(
    {*AUDITED, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
)
"""APIs of which a request without an answer may have changed something."""
ORDINARY: Final[frozenset[ApiKey]] = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""APIs of the ordinary use of topics, and those that change nothing: they cause no line."""


def audited(handlers: Mapping[int, Handler], audit: AuditLog) -> dict[int, Handler]:
    """Return the handlers; those of AUDITED write lines about their answers, and those of CHANGING
    about requests that get none.
    """
    return {key: _audited(ApiKey(key), handler, audit) for key, handler in handlers.items()}


def _audited(key: ApiKey, handler: Handler, audit: AuditLog) -> Handler:
    if key not in CHANGING:
        assert key in ELSEWHERE or key in ORDINARY, f"{key.shown}: is it audited?"
        return handler
    changes = AUDITED.get(key)

    async def handle(request: ApiMessage, context: RequestContext) -> ApiMessage | bytes:
        is_question = getattr(request, "validate_only", False)
        try:
            answer = await handler(request, context)
        except BaseException:  # also when the broker stops, while it waits for other brokers
            if not is_question:
                audit.unknown(key.shown, who=context.principal.text, peer=context.client_host)
            raise
        assert not isinstance(answer, bytes), "its results are needed"
        if changes is not None and not is_question:
            _write(audit, key, context, changes(request, answer))
        return answer

    return handle


def _write(
    audit: AuditLog, key: ApiKey, context: RequestContext, changed: Iterable[Changed]
) -> None:
    by_code: dict[int, list[str]] = {}
    for name, code in changed:
        if code not in REFUSALS:
            by_code.setdefault(code, []).append(name)
    for code, names in by_code.items():
        audit.done(
            key.shown,
            who=context.principal.text,
            peer=context.client_host,
            failed=code != ErrorCode.NONE,
            error=ErrorCode(code).name,
            count=len(names),
            names=[named[:NAME_CHARACTERS_MAX] for named in names[:NAMES_MAX]],
        )

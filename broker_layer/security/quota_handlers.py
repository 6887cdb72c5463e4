"""Handlers of DescribeClientQuotas and AlterClientQuotas.

Leaves quotas to `metadata.security`, filters to `quota_filters`, what quotas do to `server.quotas`,
and the decision whether a client may call them to the authorization of requests.

Invariants: the changes of one entity are one write: either all of them are applied or none; an
entity that a request names twice is changed by neither. With `validate_only` nothing is written.

Source: KIP-546.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_layer.handlers import Handler, RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiMessage,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.security.quota_filters import filter_of
from metadata.errors import MetadataError, OutcomeUnknownError, StoreUnavailableError
from metadata.security.errors import InvalidQuotaError, TooManyQuotasError
from metadata.security.quota_store import QuotaStore, QuotaTable
from metadata.security.quotas import (
    QUOTAS_MAX,
    QuotaChanges,
    QuotaEntity,
    QuotaKey,
    QuotaValues,
    check_change,
    entity_of,
    node_name,
)
from quire.server.audit_log import AuditLog

ALTERED_MAX: Final = 1_000
"""Maximum number of entities that one request alters."""
CHANGES_AT_ONCE_MAX: Final = 32
"""Maximum number of entities of one request whose changes are under way at the same time."""
DESCRIBED_MAX: Final = QUOTAS_MAX + ALTERED_MAX
"""Maximum number of entities in one description; no cluster has more, see QUOTAS_MAX."""

_ACT: Final = "AlterClientQuotas"
_Entry = AlterClientQuotasRequest.EntryData
_Altered = AlterClientQuotasResponse.EntryData
_Described = DescribeClientQuotasResponse.EntryData


class _Result(NamedTuple):
    code: ErrorCode
    text: str | None


class _Change(NamedTuple):
    """What a request alters of one entity."""

    entity: QuotaEntity
    changes: QuotaChanges


_DONE: Final = _Result(ErrorCode.NONE, None)


@dataclass(slots=True, eq=False, repr=False)
class QuotaHandlers:
    """Handlers of the APIs of quotas for one broker. The creator of each part also closes it."""

    _quotas: QuotaStore
    _table: QuotaTable
    _audit: AuditLog

    def handlers(self) -> dict[int, Handler]:
        """Return the handler of each API key."""
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter,
        }

    # -- describing ------------------------------------------------------------------------------

    async def describe(self, request: ApiMessage, _: RequestContext) -> ApiMessage:
        """Answer DescribeClientQuotas: the entities of the filter, and their values."""
        assert isinstance(request, DescribeClientQuotasRequest), "selected by the API"
        try:
            wanted = filter_of(request.components, is_strict=request.strict)
            await self._table.refresh()
        except MetadataError as error:
            return _description(_result_of(error), None)
        found = [
            _described(entity, values)
            for entity, values in sorted(self._table.set.quotas.items(), key=_order)
            if wanted.selects(entity)
        ]
        return _description(_DONE, found[:DESCRIBED_MAX])

    # -- altering --------------------------------------------------------------------------------

    async def alter(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer AlterClientQuotas: one result for each entry, in the order of the request."""
        assert isinstance(request, AlterClientQuotasRequest), "selected by the API"
        entries = list(request.entries)
        if len(entries) > ALTERED_MAX:
            text = f"{len(entries)} entities are altered at once: alter at most {ALTERED_MAX}"
            results = [_Result(ErrorCode.INVALID_REQUEST, text)] * len(entries)
        else:
            results = await self._alter_all(entries, context, validate=request.validate_only)
        rows = [
            _Altered(error_code=code, error_message=text, entity=_named_as(entry))
            for entry, (code, text) in zip(entries, results, strict=True)
        ]
        return AlterClientQuotasResponse(throttle_time_ms=0, entries=rows)

    async def _alter_all(
        self, entries: list[_Entry], context: RequestContext, *, validate: bool
    ) -> list[_Result]:
        checked = _checked_all(entries)
        results: list[_Result] = []
        for start in range(0, len(checked), CHANGES_AT_ONCE_MAX):
            some = checked[start : start + CHANGES_AT_ONCE_MAX]
            results += await asyncio.gather(
                *[self._alter_one(each, context, validate=validate) for each in some]
            )
        if not validate:
            with contextlib.suppress(MetadataError):  # the table follows the changes in any case
                await self._table.refresh()
        return results

    async def _alter_one(
        self, change: _Change | InvalidQuotaError, context: RequestContext, *, validate: bool
    ) -> _Result:
        who, peer = context.principal.text, context.client_host
        if isinstance(change, InvalidQuotaError):
            result = _result_of(change)
            self._audit.refused(_ACT, who=who, peer=peer, error=result.code.name)
            return result
        try:
            if validate:
                if any(value is not None for value in change.changes.values()):
                    await self._quotas.check_room(change.entity)
                return _DONE
            await self._quotas.alter(*change)
            result = _DONE
        except MetadataError as error:
            result = _result_of(error)
        if not validate:
            self._audit.done(
                _ACT,
                who=who,
                peer=peer,
                failed=result.code != ErrorCode.NONE,
                entity=change.entity.text,
                values={key.value: value for key, value in change.changes.items()},
                error=result.code.name,
            )
        return result


def _checked_all(entries: list[_Entry]) -> list[_Change | InvalidQuotaError]:
    """Return the change of each entry, or why it is refused."""
    found: list[_Change | InvalidQuotaError] = []
    for entry in entries:
        try:
            found.append(_checked(entry))
        except InvalidQuotaError as error:
            found.append(error)
    counts = Counter(each.entity for each in found if isinstance(each, _Change))
    return [
        InvalidQuotaError(f"the request alters {each.entity.text} twice: alter each entity once")
        if isinstance(each, _Change) and counts[each.entity] > 1
        else each
        for each in found
    ]


def _checked(entry: _Entry) -> _Change:
    """Return the change of one entry. Raises InvalidQuotaError."""
    entity = entity_of((each.entity_type, each.entity_name) for each in entry.entity)
    changes: dict[QuotaKey, float | None] = {}
    seen: dict[str, None] = {}
    for op in entry.ops:
        if op.key in seen:
            raise InvalidQuotaError(f"the key {op.key!r} is altered twice: alter each key once")
        seen[op.key] = None
        if not op.remove:
            changes[check_change(entity, op.key, op.value)] = op.value
        else:  # a value that the entity cannot have is gone already, as in Kafka
            changes.update(dict.fromkeys(key for key in QuotaKey if key == op.key))
    return _Change(entity, changes)


def _result_of(error: MetadataError) -> _Result:
    match error:
        case InvalidQuotaError():
            code = ErrorCode.INVALID_REQUEST
        case TooManyQuotasError():
            code = ErrorCode.POLICY_VIOLATION
        case StoreUnavailableError() | OutcomeUnknownError():
            code = ErrorCode.REQUEST_TIMED_OUT
        case _:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
    return _Result(code, str(error))


def _named_as(entry: _Entry) -> list[_Altered.EntityData]:
    """Return the entity of an answer: the names of the request, also if they are invalid."""
    return [
        _Altered.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
        for each in entry.entity
    ]


def _order(quota: tuple[QuotaEntity, QuotaValues]) -> str:
    return node_name(quota[0])


def _described(entity: QuotaEntity, values: QuotaValues) -> _Described:
    return _Described(
        entity=[
            _Described.EntityData(entity_type=kind.value, entity_name=name)
            for kind, name in entity.names
        ],
        values=[_Described.ValueData(key=key.value, value=value) for key, value in values.items()],
    )


def _description(result: _Result, rows: list[_Described] | None) -> ApiMessage:
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=result.code, error_message=result.text, entries=rows
    )

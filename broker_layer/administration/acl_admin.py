"""Handlers of DescribeAcls, CreateAcls and DeleteAcls.

Leaves the bindings to `metadata.security`, and the right to ask and to change them to the guards of
`broker_layer.security`.

Invariants: without an authorizer nothing is read or changed, and answers say SECURITY_DISABLED;
each binding of a request has its own answer; the broker that answered applies the change.

Source: KIP-140, KIP-290; the checks are those of Kafka's AclControlManager.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final, TypeVar

from broker_layer.control.topic_changes import translated
from broker_layer.errors import TopicError
from broker_layer.handlers import Handler, RequestContext, Turns, answer
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from broker_layer.kafka.versions import ApiKey
from metadata.errors import MetadataError
from metadata.security.acl_errors import InvalidAclError, TooManyAclsError
from metadata.security.acl_store import AclStore, AclView
from metadata.security.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)

ITEMS_MAX: Final = 1_000
"""Maximum number of bindings, or of filters, in one request."""
REPEATED_MAX: Final = 10_000
"""Maximum number of rows of an answer that show a removed binding once more: several filters may
select it.
"""
NO_AUTHORIZER: Final = TopicError(
    ErrorCode.SECURITY_DISABLED,
    "this broker has no authorizer: set authorizer = true in its options, and restart it",
)

_Resource = DescribeAclsResponse.DescribeAclsResource
_Created = CreateAclsResponse.AclCreationResult
_Deleted = DeleteAclsResponse.DeleteAclsFilterResult
_AskedFilter = DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter
_AskedBinding = CreateAclsRequest.AclCreation
EnumT = TypeVar("EnumT", ResourceType, PatternType, Operation, Permission)


class AclAdmin:
    """Handlers of one broker for access control lists. Any broker may receive the requests."""

    def __init__(self, store: AclStore, view: AclView) -> None:
        self._store = store
        self._view = view

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_ACLS: self.describe,
            ApiKey.CREATE_ACLS: self.create,
            ApiKey.DELETE_ACLS: self.delete,
        }

    async def describe(self, request: DescribeAclsRequest, _: RequestContext) -> ApiMessage:
        """Answer DescribeAcls."""
        try:
            selected = await self._store.select(_filter_in(request))
        except MetadataError as error:
            return answer(DescribeAclsResponse, _refusal(error))
        resources = [
            _Resource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    _Resource.AclDescription(
                        principal=binding.principal,
                        host=binding.host,
                        operation=binding.operation,
                        permission_type=binding.permission,
                    )
                    for binding in bindings
                ],
            )
            for (kind, pattern, name), bindings in groupby(selected, _resource_of)
        ]
        return answer(DescribeAclsResponse, resources=resources)

    async def create(self, request: CreateAclsRequest, _: RequestContext) -> ApiMessage:
        """Answer CreateAcls. What it stored is durable when it returns."""
        if len(request.creations) > ITEMS_MAX:
            return _refused(request, _too_many(len(request.creations)))
        refusals: list[TopicError | None] = []
        by_shard: dict[int, list[tuple[int, AclBinding]]] = {}
        for index, asked in enumerate(request.creations):
            refusals.append(None)
            try:
                binding = _binding_in(asked)
            except InvalidAclError as error:
                refusals[index] = _refusal(error)
            else:
                by_shard.setdefault(binding.shard, []).append((index, binding))
        for rows in by_shard.values():
            try:
                await self._store.add([binding for _, binding in rows])
            except MetadataError as error:
                for index, _binding in rows:
                    refusals[index] = _refusal(error)
        await self._apply()
        return CreateAclsResponse(results=[answer(_Created, refusal) for refusal in refusals])

    async def delete(self, request: DeleteAclsRequest, _: RequestContext) -> ApiMessage:
        """Answer DeleteAcls: the bindings that each filter selected are gone when it returns. Each
        is shown with every filter that selected it, as in Kafka, and with the first one alone once
        `REPEATED_MAX` were repeated.
        """
        if len(request.filters) > ITEMS_MAX:
            return _refused(request, _too_many(len(request.filters)))
        filters: list[AclFilter | TopicError] = []
        for asked in request.filters:
            try:
                filters.append(_filter_in(asked))
            except InvalidAclError as error:
                filters.append(_refusal(error))
        try:
            removed = await self._store.remove([f for f in filters if isinstance(f, AclFilter)])
        except MetadataError as error:
            return _refused(request, _refusal(error))
        await self._apply()
        shown: list[list[AclBinding]] = [[] for _ in filters]
        turns, may_repeat = Turns(), REPEATED_MAX
        for binding in removed:
            await turns.pass_on()
            is_repeated = False
            for rows, filter_ in zip(shown, filters, strict=True):
                if isinstance(filter_, AclFilter) and filter_.selects(binding):
                    rows.append(binding)
                    may_repeat -= is_repeated
                    is_repeated = True
                    if not may_repeat:
                        break
        return DeleteAclsResponse(
            filter_results=[
                _deleted(rows) if isinstance(filter_, AclFilter) else answer(_Deleted, filter_)
                for rows, filter_ in zip(shown, filters, strict=True)
            ]
        )

    async def _apply(self) -> None:
        """Have this broker decide by the change now. If the store does not answer, the watch of the
        view does it later.
        """
        try:
            await self._view.refresh()
        except MetadataError:
            return


def _refused(request: ApiMessage, refusal: TopicError) -> ApiMessage:
    """Return the answer that refuses a request as a whole."""
    match request:
        case CreateAclsRequest():
            return CreateAclsResponse(
                results=[answer(_Created, refusal) for _ in request.creations]
            )
        case DeleteAclsRequest():
            rows = [answer(_Deleted, refusal) for _ in request.filters]
            return DeleteAclsResponse(filter_results=rows)
        case _:
            return answer(DescribeAclsResponse, refusal)


async def _disabled(request: ApiMessage, _: RequestContext) -> ApiMessage:
    return _refused(request, NO_AUTHORIZER)


DISABLED: Final[dict[int, Handler]] = dict.fromkeys(
    (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), _disabled
)
"""The handlers of a broker without an authorizer."""


def _resource_of(binding: AclBinding) -> tuple[ResourceType, PatternType, str]:
    return binding.resource_type, binding.pattern_type, binding.name


def _binding_in(asked: _AskedBinding) -> AclBinding:
    """Return the binding that a request names. Raises InvalidAclError."""
    binding = AclBinding(
        _value_of(ResourceType, asked.resource_type),
        _value_of(PatternType, asked.resource_pattern_type),
        asked.resource_name,
        asked.principal,
        asked.host,
        _value_of(Operation, asked.operation),
        _value_of(Permission, asked.permission_type),
    )
    check_binding(binding)
    return binding


def _filter_in(asked: _AskedFilter) -> AclFilter:
    """Return the filter that a request names. Raises InvalidAclError."""
    return AclFilter(
        _value_of(ResourceType, asked.resource_type_filter),
        _value_of(PatternType, asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        _value_of(Operation, asked.operation),
        _value_of(Permission, asked.permission_type),
    )


def _value_of(kind: type[EnumT], number: int) -> EnumT:
    try:
        return kind(number)
    except ValueError as error:
        known = ", ".join(f"{int(permission)} ({permission.name})" for permission in kind)
        raise InvalidAclError(f"{kind.__name__} {number} is unknown: use {known}") from error


def _refusal(error: MetadataError) -> TopicError:
    match error:
        case InvalidAclError():
            return TopicError(ErrorCode.INVALID_REQUEST, str(error))
        case TooManyAclsError():
            return TopicError(ErrorCode.POLICY_VIOLATION, str(error))
        case _:
            return translated(error)


def _too_many(count: int) -> TopicError:
    text = f"the request has {count} ACLs or filters, more than {ITEMS_MAX}: send several requests"
    return TopicError(ErrorCode.INVALID_REQUEST, text)


def _deleted(removed: Sequence[AclBinding]) -> _Deleted:
    return answer(
        _Deleted,
        matching_acls=[
            answer(
                _Deleted.DeleteAclsMatchingAcl,
                resource_type=binding.resource_type,
                resource_name=binding.name,
                pattern_type=binding.pattern_type,
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
            for binding in removed
        ],
    )

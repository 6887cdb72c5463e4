"""DescribeAcls, CreateAcls and DeleteAcls."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from broker_layer.administration import acl_admin
from broker_layer.administration.acl_admin import DISABLED, ITEMS_MAX, AclAdmin
from broker_layer.handlers import Handler, RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from broker_layer.kafka.versions import SERVED, ApiKey
from metadata.security.acl_store import AclStore, AclView
from metadata.security.acls import BINDINGS_MAX
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE, CLUSTER_ACTION = 3, 4, 9
ALLOW = 3
Creation = CreateAclsRequest.AclCreation
Filter = DeleteAclsRequest.DeleteAclsFilter
VERSIONS = [1, 2, 3]


class Lists:
    """The handlers of one broker, through encoded messages."""

    def __init__(self, handlers: dict[int, Handler], view: AclView) -> None:
        self.handlers = handlers
        self.view = view

    async def ask(self, key: ApiKey, request: ApiMessage, version: int) -> ApiMessage:
        decoded = decode_request(key, version, bytes(encode_request(request, version)))
        context = RequestContext(version, "client", "host", "PLAINTEXT", 1)
        answer = await self.handlers[key](decoded, context)
        assert not isinstance(answer, bytes)
        return decode_response(key, version, bytes(encode_response(answer, version)))

    async def create(self, *creations: Creation, version: int = 3) -> list[int]:
        request = CreateAclsRequest(creations=list(creations))
        answer = await self.ask(ApiKey.CREATE_ACLS, request, version)
        assert isinstance(answer, CreateAclsResponse)
        assert all(
            bool(result.error_code) == bool(result.error_message) for result in answer.results
        )
        return [result.error_code for result in answer.results]

    async def delete(self, *filters: Filter, version: int = 3) -> list[tuple[int, list[str]]]:
        request = DeleteAclsRequest(filters=list(filters))
        answer = await self.ask(ApiKey.DELETE_ACLS, request, version)
        assert isinstance(answer, DeleteAclsResponse)
        return [
            (result.error_code, [acl.resource_name for acl in result.matching_acls])
            for result in answer.filter_results
        ]

    async def describe(self, wanted: DescribeAclsRequest, version: int = 3) -> DescribeAclsResponse:
        answer = await self.ask(ApiKey.DESCRIBE_ACLS, wanted, version)
        assert isinstance(answer, DescribeAclsResponse)
        return answer


def creation(
    name: str, operation: int = READ, pattern: int = LITERAL, kind: int = TOPIC, **other: str
) -> Creation:
    return Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=other.get("principal", "User:a"),
        host=other.get("host", "*"),
        operation=operation,
        permission_type=ALLOW,
    )


def chosen(name: str | None = None, pattern: int = ANY, operation: int = ANY) -> Filter:
    return Filter(
        resource_type_filter=ANY,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=operation,
        permission_type=ANY,
    )


def wanted(name: str | None = None, pattern: int = ANY, kind: int = ANY) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


@pytest.fixture
async def lists() -> AsyncIterator[Lists]:
    store = MemoryMetadataStore(MemoryMetadataServer())
    view = AclView(store, Random(1))
    await view.start()
    yield Lists(AclAdmin(AclStore(store, Random(2)), view).handlers(), view)
    await view.aclose()
    await store.aclose()


@pytest.mark.parametrize("version", VERSIONS)
async def test_lists_are_created_described_and_deleted(lists: Lists, version: int) -> None:
    made = [creation("a"), creation("a", WRITE), creation("b", pattern=PREFIXED)]
    assert await lists.create(*made, version=version) == [0, 0, 0]
    assert len(list(lists.view.bindings)) == 3, "the broker applies them"
    answer = await lists.describe(wanted(), version)
    assert answer.error_code == ErrorCode.NONE
    shown = {
        (resource.resource_name, resource.pattern_type): [acl.operation for acl in resource.acls]
        for resource in answer.resources
    }
    assert shown == {("a", LITERAL): [READ, WRITE], ("b", PREFIXED): [READ]}
    (acl,) = answer.resources[1].acls
    assert (acl.principal, acl.host, acl.permission_type) == ("User:a", "*", ALLOW)
    deleted = await lists.delete(chosen("bcd", MATCH), chosen(operation=WRITE), version=version)
    assert deleted == [(0, ["b"]), (0, ["a"])]
    assert len(list(lists.view.bindings)) == 1
    assert await lists.delete(chosen("bcd", MATCH), version=version) == [(0, [])]


async def test_wrong_creations_do_not_refuse_the_others(lists: Lists) -> None:
    codes = await lists.create(
        creation(""),
        creation("a"),
        creation("a", CLUSTER_ACTION),
        creation("a", 99),
        creation("a", pattern=MATCH),
        creation("a", kind=77),
        creation("a", principal="a"),
        creation("cluster", CLUSTER_ACTION, kind=CLUSTER),
    )
    refused = ErrorCode.INVALID_REQUEST
    assert codes == [refused, ErrorCode.NONE, *[refused] * 6]
    assert len(list(lists.view.bindings)) == 1


async def test_wrong_filters_are_refused(lists: Lists) -> None:
    await lists.create(creation("a"))
    assert (await lists.describe(wanted(kind=88))).error_code == ErrorCode.INVALID_REQUEST
    refused, found = await lists.delete(chosen(operation=99), chosen("a"))
    assert refused == (ErrorCode.INVALID_REQUEST, [])
    assert found == (ErrorCode.NONE, ["a"])


@pytest.mark.parametrize("repeated", [1_000, 2, 1])
async def test_removed_lists_are_repeated_up_to_a_limit(
    lists: Lists, monkeypatch: pytest.MonkeyPatch, repeated: int
) -> None:
    """Else the answer has as many rows as lists times filters."""
    monkeypatch.setattr(acl_admin, "REPEATED_MAX", repeated)
    await lists.create(*[creation(name) for name in "abcd"])
    deleted = await lists.delete(chosen("b"), chosen(operation=99), chosen(None), chosen("c"))
    assert deleted == [
        (0, ["b"]),
        (ErrorCode.INVALID_REQUEST, []),
        (0, ["a", "b", "c", "d"]),
        (0, ["c"] if repeated > 1 else []),
    ]


async def test_a_request_has_a_maximum(lists: Lists) -> None:
    codes = await lists.create(*[creation("a")] * (ITEMS_MAX + 1))
    assert dict.fromkeys(codes) == {ErrorCode.INVALID_REQUEST: None}
    answers = await lists.delete(*[chosen("a")] * (ITEMS_MAX + 1))
    assert all(code == ErrorCode.INVALID_REQUEST for code, _ in answers)


async def test_a_resource_has_a_maximum(lists: Lists) -> None:
    many = [creation("a", principal=f"User:{number}") for number in range(BINDINGS_MAX)]
    assert not any(await lists.create(*many))
    more = creation("a", principal="User:one-more")
    assert await lists.create(more, creation("b")) == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


@pytest.mark.parametrize("version", VERSIONS)
async def test_without_an_authorizer(lists: Lists, version: int) -> None:
    lists.handlers = DISABLED
    disabled = ErrorCode.SECURITY_DISABLED
    assert await lists.create(creation("a"), version=version) == [disabled]
    assert await lists.delete(chosen("a"), version=version) == [(disabled, [])]
    assert (await lists.describe(wanted(), version)).error_code == disabled


def test_served_versions() -> None:
    for key in DISABLED:
        assert list(range(SERVED[ApiKey(key)].min, SERVED[ApiKey(key)].max + 1)) == VERSIONS

"""Audit lines about requests that change a cluster."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ApiMessage,
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    decode_response,
    encode_response,
)
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from broker_layer.security.audited_handlers import (
    AUDITED,
    CHANGING,
    ELSEWHERE,
    NAMES_MAX,
    ORDINARY,
    audited,
)
from quire.identity.principal import Principal
from quire.server.overriding import override
from quire.server.server_log import AuditLog

CONTEXT = RequestContext(1, "", "10.0.0.7", "SSL", 1, Principal("ann"))
GOOD, BAD = int(ErrorCode.NONE), int(ErrorCode.INVALID_REQUEST)
REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_Topic = CreateTopicsResponse.CreatableTopicResult
_Records = DeleteRecordsResponse.DeleteRecordsTopicResult
_Offsets = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Elected = ElectLeadersResponse.ReplicaElectionResult
_Moved = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Found = DeleteAclsResponse.DeleteAclsFilterResult

ANSWERS: tuple[tuple[ApiKey, ApiMessage, ApiMessage, list[str]], ...] = (
    (
        ApiKey.CREATE_TOPICS,
        CreateTopicsRequest(),
        CreateTopicsResponse(topics=[_Topic(name="a", error_code=GOOD)]),
        ["a"],
    ),
    (
        ApiKey.DELETE_TOPICS,
        DeleteTopicsRequest(),
        DeleteTopicsResponse(
            responses=[DeleteTopicsResponse.DeletableTopicResult(name="a", error_code=GOOD)]
        ),
        ["a"],
    ),
    (
        ApiKey.DELETE_RECORDS,
        DeleteRecordsRequest(),
        DeleteRecordsResponse(
            topics=[
                _Records(
                    name="a",
                    partitions=[
                        _Records.DeleteRecordsPartitionResult(partition_index=3, error_code=GOOD)
                    ],
                )
            ]
        ),
        ["a-3"],
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsRequest(),
        CreatePartitionsResponse(
            results=[CreatePartitionsResponse.CreatePartitionsTopicResult(name="a", error_code=0)]
        ),
        ["a"],
    ),
    (
        ApiKey.ALTER_CONFIGS,
        AlterConfigsRequest(),
        AlterConfigsResponse(
            responses=[
                AlterConfigsResponse.AlterConfigsResourceResponse(
                    resource_name="a", error_code=GOOD
                )
            ]
        ),
        ["a"],
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest(),
        IncrementalAlterConfigsResponse(
            responses=[
                IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                    resource_name="a", error_code=GOOD
                )
            ]
        ),
        ["a"],
    ),
    (
        ApiKey.DELETE_GROUPS,
        DeleteGroupsRequest(),
        DeleteGroupsResponse(
            results=[DeleteGroupsResponse.DeletableGroupResult(group_id="g", error_code=GOOD)]
        ),
        ["g"],
    ),
    (
        ApiKey.OFFSET_DELETE,
        OffsetDeleteRequest(group_id="g"),
        OffsetDeleteResponse(
            topics=[
                _Offsets(
                    name="a",
                    partitions=[
                        _Offsets.OffsetDeleteResponsePartition(partition_index=3, error_code=GOOD)
                    ],
                )
            ]
        ),
        ["g a-3"],
    ),
    (
        ApiKey.ELECT_LEADERS,
        ElectLeadersRequest(),
        ElectLeadersResponse(
            replica_election_results=[
                _Elected(
                    topic="a",
                    partition_result=[_Elected.PartitionResult(partition_id=3, error_code=GOOD)],
                )
            ]
        ),
        ["a-3"],
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(),
        AlterPartitionReassignmentsResponse(
            responses=[
                _Moved(
                    name="a",
                    partitions=[
                        _Moved.ReassignablePartitionResponse(partition_index=3, error_code=GOOD)
                    ],
                )
            ]
        ),
        ["a-3"],
    ),
    (
        ApiKey.CREATE_ACLS,
        CreateAclsRequest(
            creations=[CreateAclsRequest.AclCreation(principal="User:bob", resource_name="a")]
        ),
        CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult(error_code=GOOD)]),
        ["User:bob a"],
    ),
    (
        ApiKey.DELETE_ACLS,
        DeleteAclsRequest(),
        DeleteAclsResponse(
            filter_results=[
                _Found(
                    error_code=GOOD,
                    matching_acls=[
                        _Found.DeleteAclsMatchingAcl(
                            principal="User:bob", resource_name="a", error_code=GOOD
                        )
                    ],
                )
            ]
        ),
        ["User:bob a"],
    ),
)


class Lines(AuditLog):
    """Audit log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[Mapping[str, Any]] = []
        self.unknown_lines: list[Mapping[str, Any]] = []

    @override
    def unknown(self, act: str, *, who: str, peer: str, **values: object) -> None:
        self.unknown_lines.append({"act": act, "who": who, "peer": peer, **values})

    @override
    def done(
        self, act: str, *, who: str, peer: str, failed: bool = False, **values: object
    ) -> None:
        self.lines.append({"act": act, "who": who, "peer": peer, "failed": failed, **values})


async def lines_of(key: ApiKey, request: ApiMessage, answer: ApiMessage) -> list[Mapping[str, Any]]:
    async def handle(_request: ApiMessage, _context: RequestContext) -> ApiMessage:
        return answer

    lines = Lines()
    assert await audited({key: handle}, lines)[key](request, CONTEXT) is answer
    return lines.lines


def topics(*results: tuple[str, int]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[_Topic(name=name, error_code=code) for name, code in results]
    )


def test_each_api_is_audited_or_ordinary() -> None:
    groups = [{*AUDITED}, {*ELSEWHERE}, {*ORDINARY}]
    assert set[ApiKey]().union(*groups) == {*ADVERTISED}
    assert sum(map(len, groups)) == len(ADVERTISED), "each is in one of them"


def test_each_audited_api_has_a_test() -> None:
    assert {key for key, *_ in ANSWERS} == {*AUDITED}


@pytest.mark.parametrize(("key", "request_", "answer", "names"), ANSWERS)
async def test_a_change_causes_a_line(
    key: ApiKey, request_: ApiMessage, answer: ApiMessage, names: list[str]
) -> None:
    version = ADVERTISED[key].max
    decode_response(key, version, bytes(encode_response(answer, version)))  # it is a right answer
    (line,) = await lines_of(key, request_, answer)
    assert line == {
        "act": key.shown,
        "who": "User:ann",
        "peer": "10.0.0.7",
        "failed": False,
        "error": "NONE",
        "count": 1,
        "names": names,
    }


async def test_results_of_one_kind_share_a_line() -> None:
    answer = topics(("a", GOOD), ("b", BAD), ("c", GOOD), ("d", REFUSED))
    good, bad = await lines_of(ApiKey.CREATE_TOPICS, CreateTopicsRequest(), answer)
    assert (good["failed"], good["names"]) == (False, ["a", "c"])
    assert (bad["failed"], bad["error"], bad["names"]) == (True, "INVALID_REQUEST", ["b"])


async def test_names_are_limited_and_counted() -> None:
    answer = topics(*((f"{number}" * 1_000, GOOD) for number in range(5 * NAMES_MAX)))
    (line,) = await lines_of(ApiKey.CREATE_TOPICS, CreateTopicsRequest(), answer)
    assert (line["count"], len(line["names"])) == (5 * NAMES_MAX, NAMES_MAX)
    assert max(map(len, line["names"])) < 250


async def test_a_question_causes_no_line() -> None:
    request = CreateTopicsRequest(validate_only=True)
    assert not await lines_of(ApiKey.CREATE_TOPICS, request, topics(("a", GOOD)))


@pytest.mark.parametrize("key", sorted(CHANGING))
async def test_a_change_without_an_answer_causes_a_line(key: ApiKey) -> None:
    """The broker stops after the change, and before the other brokers show it."""

    async def handle(_request: ApiMessage, _context: RequestContext) -> ApiMessage:
        raise asyncio.CancelledError

    lines = Lines()
    with pytest.raises(asyncio.CancelledError):
        await audited({key: handle}, lines)[key](CreateTopicsRequest(), CONTEXT)
    assert lines.unknown_lines == [{"act": key.shown, "who": "User:ann", "peer": "10.0.0.7"}]
    with pytest.raises(asyncio.CancelledError):
        await audited({key: handle}, lines)[key](CreateTopicsRequest(validate_only=True), CONTEXT)
    assert len(lines.unknown_lines) == 1

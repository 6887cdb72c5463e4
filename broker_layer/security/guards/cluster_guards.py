"""Guards of APIs that need a right on the cluster, and of FindCoordinator.

Source: KIP-11; Kafka's KafkaApis.
"""

from typing import Final

from broker_layer.kafka.acl_messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResponse,
)
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterPartitionReassignmentsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ApiMessage,
    DescribeLogDirsResponse,
    DescribeUserScramCredentialsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListConfigResourcesResponse,
    ListPartitionReassignmentsResponse,
)
from broker_layer.kafka.quota_messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
)
from broker_layer.security.guards.guard import GuardedCall
from broker_layer.security.rights import NOT_AUTHORIZED, REFUSALS, may_on_cluster
from metadata.security.acls import Operation, ResourceType

_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_BATCH_VERSION: Final = 4
"""First version of FindCoordinator that can request several keys."""
_KEY_KINDS: Final = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}

_Coordinator = FindCoordinatorResponse.Coordinator
_Elected = ElectLeadersResponse.ReplicaElectionResult
_Created = CreateAclsResponse.AclCreationResult
_Deleted = DeleteAclsResponse.DeleteAclsFilterResult


async def find_coordinator(call: GuardedCall) -> ApiMessage:
    """Guard FindCoordinator: the client describes the group or the transactional id."""
    request = call.request
    assert isinstance(request, FindCoordinatorRequest), "the guard of this API"
    kind = _KEY_KINDS.get(request.key_type if call.context.api_version > 0 else 0)
    if kind is None:
        return await call.serve(FindCoordinatorResponse)  # the handler refuses other kinds
    if call.context.api_version < _BATCH_VERSION:
        if call.rights.check(Operation.DESCRIBE, kind, request.key):
            return await call.serve(FindCoordinatorResponse)
        return FindCoordinatorResponse(
            error_code=REFUSALS[kind],
            error_message=NOT_AUTHORIZED,
            node_id=-1,
            host="",
            port=-1,
        )
    request.coordinator_keys, refused = call.split(
        request.coordinator_keys, Operation.DESCRIBE, kind, lambda key: key
    )
    rows = [
        _Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=REFUSALS[kind],
            error_message=NOT_AUTHORIZED,
        )
        for key in refused
    ]
    if rows and not request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=rows)
    response = await call.serve(FindCoordinatorResponse)
    response.coordinators = [*response.coordinators, *rows]
    return response


async def describe_log_dirs(call: GuardedCall) -> ApiMessage:
    """Guard DescribeLogDirs. Before version 3 a refusal is an empty answer."""
    if may_on_cluster(call.rights, Operation.DESCRIBE):
        return await call.serve(DescribeLogDirsResponse)
    return DescribeLogDirsResponse(error_code=_REFUSED, results=[])


async def elect_leaders(call: GuardedCall) -> ApiMessage:
    """Guard ElectLeaders. Each partition gets the refusal, which version 0 needs."""
    request = call.request
    assert isinstance(request, ElectLeadersRequest), "the guard of this API"
    if may_on_cluster(call.rights, Operation.ALTER):
        return await call.serve(ElectLeadersResponse)
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=_REFUSED if call.context.api_version > 0 else ErrorCode.NONE,
        replica_election_results=[
            _Elected(
                topic=topic.topic,
                partition_result=[
                    _Elected.PartitionResult(
                        partition_id=each, error_code=_REFUSED, error_message=NOT_AUTHORIZED
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


async def alter_reassignments(call: GuardedCall) -> ApiMessage:
    """Guard AlterPartitionReassignments."""
    if may_on_cluster(call.rights, Operation.ALTER):
        return await call.serve(AlterPartitionReassignmentsResponse)
    return AlterPartitionReassignmentsResponse(
        error_code=_REFUSED, error_message=NOT_AUTHORIZED, responses=[]
    )


async def list_reassignments(call: GuardedCall) -> ApiMessage:
    """Guard ListPartitionReassignments."""
    if may_on_cluster(call.rights, Operation.DESCRIBE):
        return await call.serve(ListPartitionReassignmentsResponse)
    return ListPartitionReassignmentsResponse(
        error_code=_REFUSED, error_message=NOT_AUTHORIZED, topics=[]
    )


async def list_config_resources(call: GuardedCall) -> ApiMessage:
    """Guard ListConfigResources."""
    if may_on_cluster(call.rights, Operation.DESCRIBE_CONFIGS):
        return await call.serve(ListConfigResourcesResponse)
    return ListConfigResourcesResponse(error_code=_REFUSED, config_resources=[])


async def describe_client_quotas(call: GuardedCall) -> ApiMessage:
    """Guard DescribeClientQuotas."""
    if may_on_cluster(call.rights, Operation.DESCRIBE_CONFIGS):
        return await call.serve(DescribeClientQuotasResponse)
    return DescribeClientQuotasResponse(
        error_code=_REFUSED, error_message=NOT_AUTHORIZED, entries=None
    )


async def alter_client_quotas(call: GuardedCall) -> ApiMessage:
    """Guard AlterClientQuotas."""
    assert isinstance(call.request, AlterClientQuotasRequest), "the guard of this API"
    if may_on_cluster(call.rights, Operation.ALTER_CONFIGS):
        return await call.serve(AlterClientQuotasResponse)
    kind = AlterClientQuotasResponse.EntryData
    rows = [
        kind(
            error_code=_REFUSED,
            error_message=NOT_AUTHORIZED,
            entity=[
                kind.EntityData(entity_type=named.entity_type, entity_name=named.entity_name)
                for named in each.entity
            ],
        )
        for each in call.request.entries
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=rows)


async def describe_user_scram_credentials(call: GuardedCall) -> ApiMessage:
    """Guard DescribeUserScramCredentials."""
    if may_on_cluster(call.rights, Operation.DESCRIBE):
        return await call.serve(DescribeUserScramCredentialsResponse)
    return DescribeUserScramCredentialsResponse(
        error_code=_REFUSED, error_message=NOT_AUTHORIZED, results=[]
    )


async def alter_user_scram_credentials(call: GuardedCall) -> ApiMessage:
    """Guard AlterUserScramCredentials."""
    request = call.request
    assert isinstance(request, AlterUserScramCredentialsRequest), "the guard of this API"
    if may_on_cluster(call.rights, Operation.ALTER):
        return await call.serve(AlterUserScramCredentialsResponse)
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    kind = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    rows = [kind(user=name, error_code=_REFUSED, error_message=NOT_AUTHORIZED) for name in names]
    return AlterUserScramCredentialsResponse(results=rows)


async def describe_acls(call: GuardedCall) -> ApiMessage:
    """Guard DescribeAcls."""
    if may_on_cluster(call.rights, Operation.DESCRIBE):
        return await call.serve(DescribeAclsResponse)
    return DescribeAclsResponse(error_code=_REFUSED, error_message=NOT_AUTHORIZED, resources=[])


async def create_acls(call: GuardedCall) -> ApiMessage:
    """Guard CreateAcls."""
    assert isinstance(call.request, CreateAclsRequest), "the guard of this API"
    if may_on_cluster(call.rights, Operation.ALTER):
        return await call.serve(CreateAclsResponse)
    row = _Created(error_code=_REFUSED, error_message=NOT_AUTHORIZED)
    return CreateAclsResponse(results=[row for _ in call.request.creations])


async def delete_acls(call: GuardedCall) -> ApiMessage:
    """Guard DeleteAcls."""
    assert isinstance(call.request, DeleteAclsRequest), "the guard of this API"
    if may_on_cluster(call.rights, Operation.ALTER):
        return await call.serve(DeleteAclsResponse)
    row = _Deleted(error_code=_REFUSED, error_message=NOT_AUTHORIZED, matching_acls=[])
    return DeleteAclsResponse(filter_results=[row for _ in call.request.filters])

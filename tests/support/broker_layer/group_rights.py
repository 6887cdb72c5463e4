"""Rights on groups and on the cluster, API by API."""

from broker_layer.kafka.messages import (
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.authorization_case import (
    CLUSTER,
    GROUP,
    ON_CLUSTER,
    ON_TXN,
    TXN,
    Case,
)

COMMIT = OffsetCommitRequest.OffsetCommitRequestTopic


def _fetched_offsets(*, is_all: bool, version: int) -> Case:
    needs = ["GROUP:g DESCRIBE"] if is_all else ["GROUP:g DESCRIBE", "TOPIC:t DESCRIBE"]
    if version < 8:
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if is_all else [kind(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(group_id="g", topics=topics)
    else:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        row = group.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        groups = [group(group_id="g", topics=None if is_all else [row])]
        request = OffsetFetchRequest(groups=groups)
    return Case(ApiKey.OFFSET_FETCH, request, needs, GROUP, version)


def _found(key_type: int, version: int) -> Case:
    needs, code = (["GROUP:x DESCRIBE"], GROUP) if key_type == 0 else ([f"{ON_TXN} DESCRIBE"], TXN)
    if version < 4:
        request = FindCoordinatorRequest(key="x", key_type=key_type)
    else:
        request = FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type)
    return Case(ApiKey.FIND_COORDINATOR, request, needs, code, version)


GROUP_CASES = [
    Case(
        ApiKey.JOIN_GROUP,
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="absent",
            protocol_type="consumer",
            protocols=[],
        ),
        ["GROUP:g READ"],
        GROUP,
    ),
    Case(
        ApiKey.SYNC_GROUP,
        SyncGroupRequest(group_id="g", generation_id=1, member_id="absent", assignments=[]),
        ["GROUP:g READ"],
        GROUP,
    ),
    Case(
        ApiKey.HEARTBEAT,
        HeartbeatRequest(group_id="g", generation_id=1, member_id="absent"),
        ["GROUP:g READ"],
        GROUP,
    ),
    Case(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id="g", members=[]), ["GROUP:g READ"], GROUP),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="absent",
            member_epoch=5,
            subscribed_topic_names=["t"],
            topic_partitions=None,
        ),
        ["GROUP:g READ", "TOPIC:t DESCRIBE"],
        GROUP,
    ),
    Case(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), ["GROUP:g DESCRIBE"], GROUP),
    Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ConsumerGroupDescribeRequest(group_ids=["g"]),
        ["GROUP:g DESCRIBE"],
        GROUP,
    ),
    Case(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]), ["GROUP:g DELETE"], GROUP),
    Case(
        ApiKey.OFFSET_COMMIT,
        OffsetCommitRequest(
            group_id="g",
            topics=[
                COMMIT(
                    name="t",
                    partitions=[
                        COMMIT.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        ),
        ["GROUP:g READ", "TOPIC:t READ"],
        GROUP,
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name="t",
                    partitions=[
                        OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition(
                            partition_index=0
                        )
                    ],
                )
            ],
        ),
        ["GROUP:g DELETE", "TOPIC:t READ"],
        GROUP,
    ),
    *(
        _fetched_offsets(is_all=is_all, version=version)
        for is_all, version in ((True, 9), (False, 9), (True, 7), (False, 7), (False, 1))
    ),
    *(_found(key_type, version) for key_type in (0, 1) for version in (3, 5)),
]

CLUSTER_CASES = [
    Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        DescribeLogDirsRequest(topics=None),
        [f"{ON_CLUSTER} DESCRIBE"],
        CLUSTER,
    ),
    *(
        Case(
            ApiKey.ELECT_LEADERS,
            ElectLeadersRequest(
                election_type=0,
                topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])],
                timeout_ms=5_000,
            ),
            [f"{ON_CLUSTER} ALTER"],
            CLUSTER,
            version,
        )
        for version in (0, 2)
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(timeout_ms=5_000, topics=[]),
        [f"{ON_CLUSTER} ALTER"],
        CLUSTER,
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsRequest(timeout_ms=5_000, topics=None),
        [f"{ON_CLUSTER} DESCRIBE"],
        CLUSTER,
    ),
    Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        ListConfigResourcesRequest(resource_types=[]),
        [f"{ON_CLUSTER} DESCRIBE_CONFIGS"],
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        DescribeClientQuotasRequest(components=[], strict=False),
        [f"{ON_CLUSTER} DESCRIBE_CONFIGS"],
        CLUSTER,
    ),
    Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.EntryData(
                    entity=[
                        AlterClientQuotasRequest.EntryData.EntityData(
                            entity_type="user", entity_name="z"
                        )
                    ],
                    ops=[],
                )
            ],
            validate_only=True,
        ),
        [f"{ON_CLUSTER} ALTER_CONFIGS"],
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest(users=[]),
        [f"{ON_CLUSTER} DESCRIBE"],
        CLUSTER,
    ),
    Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsRequest(
            deletions=[
                AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="z", mechanism=1)
            ],
            upsertions=[],
        ),
        [f"{ON_CLUSTER} ALTER"],
        CLUSTER,
    ),
    Case(
        ApiKey.DESCRIBE_ACLS,
        DescribeAclsRequest(
            resource_type_filter=2, pattern_type_filter=3, operation=1, permission_type=1
        ),
        [f"{ON_CLUSTER} DESCRIBE"],
        CLUSTER,
    ),
    Case(
        ApiKey.CREATE_ACLS,
        CreateAclsRequest(
            creations=[
                CreateAclsRequest.AclCreation(
                    resource_type=2,
                    resource_name="t",
                    resource_pattern_type=3,
                    principal="User:z",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        [f"{ON_CLUSTER} ALTER"],
        CLUSTER,
    ),
    Case(
        ApiKey.DELETE_ACLS,
        DeleteAclsRequest(
            filters=[
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="absent",
                    pattern_type_filter=3,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        [f"{ON_CLUSTER} ALTER"],
        CLUSTER,
    ),
]

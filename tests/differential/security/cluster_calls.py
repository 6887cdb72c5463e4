"""Requests about the cluster, for users with different rights."""

from collections.abc import Mapping
from typing import Final

from tests.differential.run import METADATA
from tests.differential.security.acl_cases import CREATE as CREATE_ACLS
from tests.differential.security.acl_cases import DELETE as DELETE_ACLS
from tests.differential.security.acl_cases import DESCRIBE as DESCRIBE_ACLS
from tests.differential.security.acl_cases import LITERAL, TOPIC, binding, chosen, creation
from tests.differential.security.calls import Call, Cell
from tests.differential.security.secure_run import ALTER_USERS, DESCRIBE_USERS, new_user
from tests.differential.topic_cases import DESCRIBE_CLUSTER, ELECT, TIMEOUT_MS
from tests.differential.wire import Tree

LOG_DIRS: Final = ("DescribeLogDirs", 35)
ALTER_REASSIGNMENTS: Final = ("AlterPartitionReassignments", 45)
LIST_REASSIGNMENTS: Final = ("ListPartitionReassignments", 46)
DESCRIBE_QUOTAS: Final = ("DescribeClientQuotas", 48)
ALTER_QUOTAS: Final = ("AlterClientQuotas", 49)
LIST_CONFIG_RESOURCES: Final = ("ListConfigResources", 74)
ABSENT: Final = "absent-topic"


def _elected(topic: str) -> Mapping[str, Tree]:
    rows: Tree = [{"topic": topic, "partitions": [0]}]
    return {"election_type": 0, "topic_partitions": rows, "timeout_ms": TIMEOUT_MS}


def _moved(topic: str) -> Mapping[str, Tree]:
    part: Mapping[str, Tree] = {"partition_index": 0, "replicas": None}
    return {"timeout_ms": TIMEOUT_MS, "topics": [{"name": topic, "partitions": [part]}]}


def _altered_quota() -> Mapping[str, Tree]:
    entry: Mapping[str, Tree] = {
        "entity": [{"entity_type": "user", "entity_name": "differential"}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
    }
    return {"entries": [entry], "validate_only": True}


def _own_rule(cell: Cell) -> Mapping[str, Tree]:
    return creation(binding(TOPIC, cell.own("ruled")))


CLUSTER_CALLS: Final = (
    Call("describe cluster", DESCRIBE_CLUSTER, 1, lambda _: {"endpoint_type": 1}),
    Call(
        "describe cluster with operations",
        DESCRIBE_CLUSTER,
        1,
        lambda _: {"endpoint_type": 1, "include_cluster_authorized_operations": True},
    ),
    Call(
        "metadata with operations of the cluster",
        METADATA,
        9,
        lambda _: {"topics": [], "include_cluster_authorized_operations": True},
    ),
    Call("elect", ELECT, 2, lambda c: _elected(c.topic)),
    Call("elect, absent", ELECT, 2, lambda c: _elected(c.own(ABSENT))),
    Call(
        "log directories",
        LOG_DIRS,
        4,
        lambda c: {"topics": [{"topic": c.own(ABSENT), "partitions": [0]}]},
        ("results",),
    ),
    Call("alter reassignments", ALTER_REASSIGNMENTS, 0, lambda c: _moved(c.topic)),
    Call("list reassignments", LIST_REASSIGNMENTS, 0, lambda _: {"topics": None}),
    Call(
        "describe quotas",
        DESCRIBE_QUOTAS,
        1,
        lambda _: {"components": [], "strict": False},
    ),
    Call("alter quotas", ALTER_QUOTAS, 1, lambda _: _altered_quota()),
    Call(
        "list settings' resources",
        LIST_CONFIG_RESOURCES,
        1,
        lambda _: {"resource_types": [4]},
    ),
    Call("describe users", DESCRIBE_USERS, 0, lambda c: {"users": [{"name": c.user}]}),
    Call(
        "alter users",
        ALTER_USERS,
        0,
        lambda c: {"deletions": [], "upsertions": [new_user(c.own("new"))]},
    ),
    Call(
        "describe rules",
        DESCRIBE_ACLS,
        3,
        lambda c: chosen(TOPIC, c.own("ruled"), pattern=LITERAL),
    ),
    Call("create rules", CREATE_ACLS, 3, _own_rule),
    Call(
        "delete rules",
        DELETE_ACLS,
        3,
        lambda c: {"filters": [chosen(TOPIC, c.own("ruled"), pattern=LITERAL)]},
    ),
)

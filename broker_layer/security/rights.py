"""Rights of one client during one request.

Leaves the decisions to `authorizer`.

Invariant: each right is decided when it is asked for, so a change of the access control lists has
an effect on requests that wait.

Source: KIP-11, KIP-430 (authorized operations).
"""

from collections.abc import Iterable
from typing import Final, Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
)
from metadata.security.acls import CLUSTER_NAME, Operation, ResourceType

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Kafka's error for an operation on a resource of each type that is not allowed."""

NOT_AUTHORIZED: Final = "not authorized: an administrator can grant the right (quire acl add)"
"""Text of a refusal."""

_SHOWN: Final = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
}


class Rights(Protocol):
    """What a client may do."""

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the client may do an operation. A refusal is not logged."""

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the client may do an operation on some resource. A refusal is not
        logged.
        """

    def check(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the client may do an operation; log a refusal."""


def may_on_cluster(rights: Rights, operation: Operation) -> bool:
    """Return whether a client may do an operation on the cluster; log a refusal."""
    return rights.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def sees_topic(rights: Rights | None, name: str) -> bool:
    """Return whether a client may learn that a topic exists."""
    return rights is None or rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def creates_topic(rights: Rights | None, name: str) -> bool:
    """Return whether a client may create a topic; log a refusal."""
    return (
        rights is None
        or rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        or rights.check(Operation.CREATE, ResourceType.TOPIC, name)
    )


def seen_topics(rights: Rights | None, names: Iterable[str]) -> list[str]:
    """Return the topics that a client may learn of."""
    return [name for name in names if sees_topic(rights, name)]


def operations_on(
    rights: Rights | None, kind: ResourceType, name: str = CLUSTER_NAME
) -> tuple[Operation, ...]:
    """Return the operations that a client may do on a resource; all without an authorizer.

    A client that may not describe the cluster gets none of the cluster, as from Kafka.
    """
    shown = _SHOWN[kind]
    if rights is None:
        return shown
    if kind is ResourceType.CLUSTER and not rights.may(Operation.DESCRIBE, kind, name):
        return ()
    return tuple(each for each in shown if rights.may(each, kind, name))

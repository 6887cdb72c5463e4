"""Table of the handlers of the administration APIs.

Leaves the answers to the modules that it imports, and calling them to `dispatch.py`.
"""

from dataclasses import dataclass

from broker_layer.administration.acl_admin import DISABLED, AclAdmin
from broker_layer.administration.cluster_answers import (
    ClusterAnswers,
    MetadataAnswers,
    TopicPartitionAnswers,
)
from broker_layer.administration.config_admin import ConfigAdmin
from broker_layer.administration.leader_elections import LeaderElections
from broker_layer.administration.reassignments import MovingLedgers, Reassignments
from broker_layer.administration.spreading import TopicSpreading
from broker_layer.administration.topic_admin import MutationQuota, TopicAdmin
from broker_layer.control.bookie_states import LiveBookies
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.led_partitions import ReplicaView
from broker_layer.control.ledger_health import LedgerHealth
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.control.topic_changes import TopicChanges
from broker_layer.handlers import Handler
from broker_layer.kafka.versions import ApiKey
from metadata.topics.replica_numbers import ReplicaNumbers
from metadata.topics.topic_store import TopicStore


@dataclass(frozen=True, slots=True)
class AdminParts:
    """Parts that the administration handlers use. The creator of each part also closes it."""

    view: ClusterView
    topics: TopicStore
    manager: PartitionManager
    changes: TopicChanges
    numbers: ReplicaNumbers
    bookies: LiveBookies
    health: LedgerHealth
    moving: MovingLedgers
    config: ControlConfig
    cluster_id: str
    spreading: TopicSpreading | None = None
    acls: AclAdmin | None = None
    """Handlers of access control lists; None without an authorizer."""
    mutations: MutationQuota | None = None
    """Quota of changes of topics; None for none."""


def handlers(parts: AdminParts) -> dict[int, Handler]:
    """Return the handler of each API key. All return messages, except that Metadata returns
    encoded bytes where it can.
    """
    view, manager, changes, config = parts.view, parts.manager, parts.changes, parts.config
    replicas = ReplicaView(
        view, manager, parts.numbers, parts.bookies, parts.health, config.topic_defaults
    )
    metadata = MetadataAnswers(view, replicas, changes, config, parts.cluster_id)
    cluster = ClusterAnswers(view, manager, changes, parts.cluster_id)
    topics = TopicAdmin(view, changes, config, parts.spreading)
    configs = ConfigAdmin(manager.broker_id, view, changes, config, parts.spreading)
    elections = LeaderElections(view, parts.topics)
    reassignments = Reassignments(view, parts.topics, replicas, parts.moving, config.topic_defaults)
    changes_of_topics: dict[int, Handler] = {
        ApiKey.CREATE_TOPICS: topics.create_topics,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        ApiKey.DELETE_TOPICS: topics.delete_topics,
    }
    if parts.mutations is not None:
        changes_of_topics = parts.mutations.limited(changes_of_topics)
    return {
        **(DISABLED if parts.acls is None else parts.acls.handlers()),
        ApiKey.METADATA: metadata.answer,
        ApiKey.FIND_COORDINATOR: cluster.find_coordinator,
        ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
        ApiKey.DESCRIBE_LOG_DIRS: cluster.describe_log_dirs,
        **changes_of_topics,
        ApiKey.DESCRIBE_CONFIGS: configs.describe,
        ApiKey.ALTER_CONFIGS: configs.alter,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_incrementally,
        ApiKey.ELECT_LEADERS: elections.elect,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.alter,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.list,
        ApiKey.LIST_CONFIG_RESOURCES: configs.list_resources,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: TopicPartitionAnswers(view, changes, metadata).answer,
    }

"""The guard of each API, and handlers behind their guards.

Leaves the decisions to the guards. An API without a guard is in `UNGUARDED`, with the reason.

Invariant: with an authorizer, an API without a guard and without a reason is not served.

Source: KIP-11; Kafka's KafkaApis.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from broker_layer.handlers import Handler
from broker_layer.kafka.messages import ApiMessage
from broker_layer.kafka.versions import ApiKey
from broker_layer.request_context import RequestContext
from broker_layer.security.authorizer import Authorizer
from broker_layer.security.guards import (
    cluster_guards,
    config_guards,
    group_guards,
    topic_guards,
    transaction_guards,
)
from broker_layer.security.guards.guard import Guard, GuardedCall, TopicIds
from broker_layer.security.guards.offset_fetch_guard import offset_fetch

GUARDS: Final[dict[ApiKey, Guard]] = {
    ApiKey.LIST_OFFSETS: topic_guards.list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topic_guards.offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: topic_guards.delete_records,
    ApiKey.DESCRIBE_PRODUCERS: topic_guards.describe_producers,
    ApiKey.CREATE_TOPICS: topic_guards.create_topics,
    ApiKey.CREATE_PARTITIONS: topic_guards.create_partitions,
    ApiKey.DELETE_TOPICS: topic_guards.delete_topics,
    ApiKey.JOIN_GROUP: group_guards.join_group,
    ApiKey.SYNC_GROUP: group_guards.sync_group,
    ApiKey.HEARTBEAT: group_guards.heartbeat,
    ApiKey.LEAVE_GROUP: group_guards.leave_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: group_guards.consumer_group_heartbeat,
    ApiKey.DESCRIBE_GROUPS: group_guards.describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: group_guards.consumer_group_describe,
    ApiKey.LIST_GROUPS: group_guards.list_groups,
    ApiKey.DELETE_GROUPS: group_guards.delete_groups,
    ApiKey.OFFSET_COMMIT: group_guards.offset_commit,
    ApiKey.OFFSET_DELETE: group_guards.offset_delete,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.INIT_PRODUCER_ID: transaction_guards.init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transaction_guards.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transaction_guards.add_offsets,
    ApiKey.END_TXN: transaction_guards.end_transaction,
    ApiKey.TXN_OFFSET_COMMIT: transaction_guards.txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: transaction_guards.write_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: transaction_guards.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transaction_guards.list_transactions,
    ApiKey.DESCRIBE_CONFIGS: config_guards.describe_configs,
    ApiKey.ALTER_CONFIGS: config_guards.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: config_guards.alter_configs_incrementally,
    ApiKey.FIND_COORDINATOR: cluster_guards.find_coordinator,
    ApiKey.DESCRIBE_LOG_DIRS: cluster_guards.describe_log_dirs,
    ApiKey.ELECT_LEADERS: cluster_guards.elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster_guards.alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster_guards.list_reassignments,
    ApiKey.LIST_CONFIG_RESOURCES: cluster_guards.list_config_resources,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster_guards.describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: cluster_guards.alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster_guards.describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: cluster_guards.alter_user_scram_credentials,
    ApiKey.DESCRIBE_ACLS: cluster_guards.describe_acls,
    ApiKey.CREATE_ACLS: cluster_guards.create_acls,
    ApiKey.DELETE_ACLS: cluster_guards.delete_acls,
}

UNGUARDED: Final[dict[ApiKey, str]] = {
    ApiKey.PRODUCE: "its service checks each topic before it waits or appends",
    ApiKey.FETCH: "its service checks each topic at each read, because sessions last",
    ApiKey.METADATA: "its handler checks each topic: the answer about all of them is shared",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "its handler checks each topic: the answer has pages",
    ApiKey.API_VERSIONS: "clients must know the versions before they can prove who they are",
    ApiKey.SASL_HANDSHAKE: "clients cannot have rights before they prove who they are",
    ApiKey.SASL_AUTHENTICATE: "clients cannot have rights before they prove who they are",
    ApiKey.DESCRIBE_CLUSTER: "each client needs the addresses of the brokers, as in Kafka",
}
"""APIs without a guard here, with the reason."""


def guarded(
    handlers: Mapping[int, Handler], authorizer: Authorizer, topic_ids: TopicIds
) -> dict[int, Handler]:
    """Return the handlers, each behind the guard of its API."""
    return {
        key: _guarded(ApiKey(key), handler, authorizer, topic_ids)
        for key, handler in handlers.items()
    }


def _guarded(key: ApiKey, handler: Handler, authorizer: Authorizer, topic_ids: TopicIds) -> Handler:
    guard = GUARDS.get(key)
    assert guard is not None or key in UNGUARDED, f"{key.shown} has no guard"

    async def handle(request: ApiMessage, context: RequestContext) -> ApiMessage | bytes:
        rights = authorizer.rights_of(context.principal, context.client_host, context.listener, key)
        context = replace(context, rights=rights)
        if guard is None:
            return await handler(request, context)
        return await guard(GuardedCall(request, context, rights, topic_ids, handler))

    return handle

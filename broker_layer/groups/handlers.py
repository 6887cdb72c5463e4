"""Table of the handlers of the group APIs.

Leaves the answers to the handler classes, and decoding and encoding to `dispatch`.
"""

from broker_layer.groups.classic.membership_handlers import MembershipHandlers
from broker_layer.groups.consumer.consumer_handlers import ConsumerGroupHandlers
from broker_layer.groups.coordinator import GroupCoordinator
from broker_layer.groups.group_admin import GroupAdminHandlers
from broker_layer.groups.offsets.offset_commits import OffsetCommitHandlers, OffsetVerifier
from broker_layer.groups.offsets.offset_reads import OffsetReadHandlers
from broker_layer.handlers import Handler
from broker_layer.kafka.versions import ApiKey


def handlers(
    coordinator: GroupCoordinator, verifier: OffsetVerifier | None = None
) -> dict[int, Handler]:
    """Return the handlers by API key. With `verifier`, TxnOffsetCommit checks that the transaction
    is open.
    """
    membership = MembershipHandlers(coordinator)
    commits = OffsetCommitHandlers(coordinator, verifier)
    reads = OffsetReadHandlers(coordinator)
    consumers = ConsumerGroupHandlers(coordinator)
    admin = GroupAdminHandlers(coordinator)
    return {
        ApiKey.OFFSET_COMMIT: commits.offset_commit,
        ApiKey.OFFSET_FETCH: reads.offset_fetch,
        ApiKey.JOIN_GROUP: membership.join_group,
        ApiKey.HEARTBEAT: membership.heartbeat,
        ApiKey.LEAVE_GROUP: membership.leave_group,
        ApiKey.SYNC_GROUP: membership.sync_group,
        ApiKey.DESCRIBE_GROUPS: admin.describe_groups,
        ApiKey.LIST_GROUPS: admin.list_groups,
        ApiKey.TXN_OFFSET_COMMIT: commits.txn_offset_commit,
        ApiKey.DELETE_GROUPS: admin.delete_groups,
        ApiKey.OFFSET_DELETE: reads.offset_delete,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumers.heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumers.describe,
    }

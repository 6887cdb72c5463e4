"""Handlers of DescribeCluster, FindCoordinator and DescribeLogDirs.

Leaves the state of the cluster to `cluster_view.py`, and creating internal topics to
`topic_changes.py`.

Source: KIP-700 (DescribeCluster), KIP-699 (batches of coordinators), KIP-113 and KIP-827 (log
directories).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.control.topic_changes import CREATION_TIMEOUT_S, TopicChanges
from broker_layer.coordinator_partitions import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
)
from broker_layer.errors import TopicError
from broker_layer.handlers import RequestContext
from broker_layer.java_hash import partition_of_key
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from broker_layer.log.topic_log import TopicLog
from broker_layer.security.rights import operations_on
from broker_layer.turns import Turns
from metadata.errors import MetadataError
from metadata.security.acls import ResourceType

BATCH_VERSION: Final = 4
"""First version of FindCoordinator that can request several keys."""
LOG_DIRECTORY: Final = "/ledgers"
"""Name of the single log directory of a broker. The partitions are in ledgers on bookies."""
ENDPOINT_BROKERS: Final = 1

_STATE_TOPICS: Final = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
_Coordinator = FindCoordinatorResponse.Coordinator
_Directory = DescribeLogDirsResponse.DescribeLogDirsResult
_DirectoryTopic = _Directory.DescribeLogDirsTopic
_DirectoryPartition = _DirectoryTopic.DescribeLogDirsPartition


@dataclass(frozen=True, slots=True)
class _Found:
    """A coordinator, or the reason why none was found."""

    node_id: int = -1
    host: str = ""
    port: int = -1
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None


@dataclass(eq=False, repr=False)
class ClusterAnswers:
    """Handlers of one broker for requests about the cluster."""

    _view: ClusterView
    _manager: PartitionManager
    _changes: TopicChanges
    _cluster_id: str

    async def describe_cluster(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer DescribeCluster."""
        assert isinstance(request, DescribeClusterRequest), "the dispatcher selects by API"
        if context.api_version > 0 and request.endpoint_type != ENDPOINT_BROKERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="only brokers can be described: there are no separate controllers",
                cluster_id=self._cluster_id,
                brokers=[],
            )
        brokers = []
        for broker_id, registration in sorted(self._view.brokers.items()):
            address = self._view.address_of(broker_id, context.listener)
            if address is not None:
                brokers.append(
                    DescribeClusterResponse.DescribeClusterBroker(
                        broker_id=broker_id,
                        host=address[0],
                        port=address[1],
                        rack=registration.rack or None,
                    )
                )
        response = DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            cluster_id=self._cluster_id,
            controller_id=self._view.controller_id,
            brokers=brokers,
        )
        if request.include_cluster_authorized_operations:
            operations = operations_on(context.rights, ResourceType.CLUSTER)
            response.authorized_operations = set(operations)
        return response

    # -- coordinators ----------------------------------------------------------------------------

    async def find_coordinator(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer FindCoordinator; creates the internal topic if it does not exist."""
        assert isinstance(request, FindCoordinatorRequest), "the dispatcher selects by API"
        key_type = request.key_type if context.api_version > 0 else 0
        if context.api_version < BATCH_VERSION:
            (found,) = await self._find(key_type, [request.key], context)
            return FindCoordinatorResponse(
                error_code=found.code,
                error_message=found.text,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        keys = list(request.coordinator_keys)
        return FindCoordinatorResponse(
            coordinators=[
                _Coordinator(
                    key=key,
                    node_id=found.node_id,
                    host=found.host,
                    port=found.port,
                    error_code=found.code,
                    error_message=found.text,
                )
                for key, found in zip(keys, await self._find(key_type, keys, context), strict=True)
            ]
        )

    async def _find(
        self, key_type: int, keys: Iterable[str], context: RequestContext
    ) -> list[_Found]:
        topic = _STATE_TOPICS.get(key_type)
        if topic is None:
            text = f"there are no coordinators of type {key_type}: use 0 (group) or 1 (transaction)"
            return [_Found(code=ErrorCode.INVALID_REQUEST, text=text) for _ in keys]
        try:
            record = await self._changes.ensure(topic, CREATION_TIMEOUT_S)
        except TopicError as error:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return [_Found(code=code, text=error.text) for _ in keys]
        count = len(record.partitions)
        found, turns = list[_Found](), Turns()
        for key in keys:
            found.append(self._leader(topic, partition_of_key(key, count), context))
            await turns.pass_on()
        return found

    def _leader(self, topic: str, partition: int, context: RequestContext) -> _Found:
        leader = self._view.leader_of(topic, partition)
        address = None if leader is None else self._view.address_of(leader[0], context.listener)
        if leader is None or address is None:
            text = f"{topic}-{partition} has no leader now: retry"
            return _Found(code=ErrorCode.COORDINATOR_NOT_AVAILABLE, text=text)
        return _Found(leader[0], *address)

    # -- log directories -------------------------------------------------------------------------

    async def describe_log_dirs(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer DescribeLogDirs: the sizes of the partitions that this broker leads."""
        assert isinstance(request, DescribeLogDirsRequest), "the dispatcher selects by API"
        del context
        asked: dict[str, dict[int, None]] | None = None
        if request.topics is not None:
            asked = {each.topic: dict.fromkeys(each.partitions) for each in request.topics}
        topics, turns = dict[str, list[_DirectoryPartition]](), Turns()
        for log in self._manager.logs():
            await turns.pass_on()
            partition = log.key.partition
            if asked is None or partition in asked.get(log.topic, ()):
                topics.setdefault(log.topic, []).append(
                    _DirectoryPartition(
                        partition_index=partition,
                        partition_size=await _size_of(log),
                        offset_lag=0,
                        is_future_key=False,
                    )
                )
        directory = _Directory(
            error_code=ErrorCode.NONE,
            log_dir=LOG_DIRECTORY,
            topics=[
                _DirectoryTopic(name=name, partitions=partitions)
                for name, partitions in sorted(topics.items())
            ],
        )
        return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[directory])


async def _size_of(log: TopicLog) -> int:
    """Return the size of a log in bytes, or the last known size if it cannot be measured now."""
    try:
        return await log.measure()
    except (TopicError, MetadataError):
        return log.size_bytes

"""Handlers of AlterPartitionReassignments and ListPartitionReassignments.

In Quire a reassignment places leadership: the first broker of a list becomes the preferred leader,
durably, and leads from now on. Bookies store the records, so no list moves copies: that is what
`quire bookie drain` does. Both are listed while they are under way.

Leaves taking over to the broker that becomes the leader, and the ledgers that repair moves to
`moving_ledgers.py`.

Invariants: a partition is changed as its request says, or not at all and with an error; the
replication factor never changes. A partition without a leader has no reassignment in progress.

Source: KIP-455, KIP-860 (version 1); docs/topics.md, "Reassignments".
"""

from collections.abc import Mapping, Sequence
from typing import Final

from broker_layer.administration.moving_ledgers import MovingBookies, MovingLedgers
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.shown_replicas import ReplicaView
from broker_layer.control.topic_changes import translated
from broker_layer.errors import TopicError
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ApiMessage,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from broker_layer.log.topic_configs import TopicDefaults, replication_factor
from broker_layer.turns import Turns
from metadata.errors import MetadataError
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import (
    BROKER_ID_MAX,
    NO_LEADER,
    PartitionLeadership,
    TopicRecord,
)
from metadata.topics.topic_store import TopicStore

_Outcome = tuple[ErrorCode, str | None]
_Changed = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_ChangedPartition = _Changed.ReassignablePartitionResponse
_Listed = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_ListedPartition = _Listed.OngoingPartitionReassignment

_NOTHING_MOVES: Final = MovingBookies((), ())


class Reassignments:
    """Handlers of reassignments. Any broker may receive the requests."""

    def __init__(
        self,
        view: ClusterView,
        topics: TopicStore,
        replicas: ReplicaView,
        moving: MovingLedgers,
        defaults: TopicDefaults,
    ) -> None:
        self._view = view
        self._topics = topics
        self._replicas = replicas
        self._moving = moving
        self._defaults = defaults

    # -- AlterPartitionReassignments -------------------------------------------------------------

    async def alter(self, request: ApiMessage, _: RequestContext) -> ApiMessage:
        """Answer AlterPartitionReassignments. The changes are durable when it returns."""
        assert isinstance(request, AlterPartitionReassignmentsRequest), "the dispatcher selects"
        responses, turns = [], Turns()
        for topic in request.topics:
            await turns.pass_on()
            wanted = {
                each.partition_index: None if each.replicas is None else list(each.replicas)
                for each in topic.partitions
            }
            outcomes = await self._alter(topic.name, wanted)
            partitions = [
                _ChangedPartition(partition_index=partition, error_code=code, error_message=text)
                for partition, (code, text) in outcomes.items()
            ]
            responses.append(_Changed(name=topic.name, partitions=partitions))
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms=0,
            allow_replication_factor_change=bool(request.allow_replication_factor_change),
            error_code=ErrorCode.NONE,
            error_message=None,
            responses=responses,
        )

    async def _alter(
        self, topic: str, wanted: Mapping[int, Sequence[int] | None]
    ) -> Mapping[int, _Outcome]:
        outcomes: dict[int, _Outcome] = {}

        def change(record: TopicRecord) -> TopicRecord | None:
            preferred, leaders = dict[int, int](), dict[int, int]()
            factor = replication_factor(record.configs, self._defaults)
            for partition, brokers in wanted.items():
                try:
                    leader = self._leader_of(record, partition, brokers, factor)
                except TopicError as error:
                    outcomes[partition] = error.code, error.text
                    continue
                outcomes[partition] = ErrorCode.NONE, None
                preferred[partition] = leader
                if record.partitions[partition].leader != leader:
                    leaders[partition] = leader
            changed = record.with_preferred(preferred).with_leaders(leaders)
            return None if changed == record else changed

        if topic not in self._view.topics:
            return {each: _unknown(topic, each) for each in wanted}
        try:
            self._view.learn(await self._topics.change(topic, change))
        except MetadataError as error:
            failure = translated(error)
            return dict.fromkeys(wanted, (failure.code, failure.text))
        return outcomes

    def _leader_of(
        self, record: TopicRecord, partition: int, brokers: Sequence[int] | None, factor: int
    ) -> int:
        """Return who is to lead a partition from now on. Raises TopicError."""
        if record.is_deleted or not 0 <= partition < len(record.partitions):
            raise TopicError(*_unknown(record.name, partition))
        seen = record.partitions[partition]
        if brokers is None:
            _check_in_progress(seen)
            return seen.leader
        self._check(brokers, factor)
        return brokers[0]

    def _check(self, brokers: Sequence[int], factor: int) -> None:
        """Check a list of replicas. Raises TopicError."""
        bad = ErrorCode.INVALID_REPLICATION_ASSIGNMENT
        if not brokers:
            raise TopicError(bad, "the list of replicas is empty: name the broker that is to lead")
        if len(dict.fromkeys(brokers)) < len(brokers):
            raise TopicError(bad, "a broker is named twice: name each once")
        for broker_id in brokers:
            if broker_id > BROKER_ID_MAX:
                text = (
                    f"{broker_id} is not a broker, but a replica on a bookie: name brokers. "
                    "`quire bookie drain` moves the copies of a bookie"
                )
                raise TopicError(bad, text)
            if broker_id not in self._view.brokers:
                text = f"broker {broker_id} is not up: start it, or name another broker"
                raise TopicError(bad, text)
        if len(brokers) not in (1, factor):
            text = (
                f"the replication factor is {factor}, and {len(brokers)} brokers are named: name "
                f"{factor}, or only the one that is to lead; the factor cannot be changed"
            )
            raise TopicError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if brokers[0] not in self._view.may_lead():
            text = f"broker {brokers[0]} is stopping: name another broker first"
            raise TopicError(bad, text)

    # -- ListPartitionReassignments --------------------------------------------------------------

    async def list(self, request: ApiMessage, _: RequestContext) -> ApiMessage:
        """Answer ListPartitionReassignments: what is not yet where it is to be."""
        assert isinstance(request, ListPartitionReassignmentsRequest), "the dispatcher selects"
        try:
            moving = await self._moving.by_partition()
        except MetadataError as error:
            failure = translated(error)
            return ListPartitionReassignmentsResponse(
                error_code=failure.code, error_message=failure.text, topics=[]
            )
        topics = []
        for record, asked in self._asked(request):
            found = [
                listed
                for partition in asked
                if (listed := self._listed(record, partition, moving)) is not None
            ]
            if found:
                topics.append(_Listed(name=record.name, partitions=found))
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.NONE, error_message=None, topics=topics
        )

    def _asked(
        self, request: ListPartitionReassignmentsRequest
    ) -> Sequence[tuple[TopicRecord, Sequence[int]]]:
        known = self._view.topics
        if request.topics is None:
            return [(known[name], range(len(known[name].partitions))) for name in sorted(known)]
        return [
            (
                record,
                [each for each in asked.partition_indexes if 0 <= each < len(record.partitions)],
            )
            for asked in request.topics
            if (record := known.get(asked.name)) is not None
        ]

    def _listed(
        self, record: TopicRecord, partition: int, moving: Mapping[PartitionKey, MovingBookies]
    ) -> _ListedPartition | None:
        seen = record.partitions[partition]
        is_moved = _is_in_progress(seen)
        moved = moving.get(PartitionKey(record.topic_id, partition))
        if not is_moved and moved is None:
            return None
        moved = moved or _NOTHING_MOVES
        adding = [seen.preferred] * is_moved + list(moved.incoming)
        removing = [seen.leader] * is_moved + list(moved.leaving)
        shown = self._replicas.of(record, partition).replicas
        return _ListedPartition(
            partition_index=partition,
            replicas=list(dict.fromkeys([*adding, *removing, *shown])),
            adding_replicas=adding,
            removing_replicas=removing,
        )


def _is_in_progress(seen: PartitionLeadership) -> bool:
    return seen.leader not in (seen.preferred, NO_LEADER)


def _check_in_progress(seen: PartitionLeadership) -> None:
    if _is_in_progress(seen):
        return
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    if seen.leader == NO_LEADER:
        raise TopicError(code, "no broker leads the partition: start one")
    text = (
        f"broker {seen.leader} leads the partition, as it is to do; `quire bookie undrain` ends "
        "moves of ledgers"
    )
    raise TopicError(code, text)


def _unknown(topic: str, partition: int) -> tuple[ErrorCode, str]:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}"

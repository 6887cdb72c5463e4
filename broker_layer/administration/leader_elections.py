"""Handler of ElectLeaders: elects preferred leaders, or unclean ones where data may be lost.

Leaves taking over to the brokers that become leaders, and the effects of an unclean leadership to
`log_takeover.py`.

Invariants: a leadership changes only if it is still the one that was read. An unclean leadership is
requested only where the present leader does not report the partition in its epoch. Even then, it
keeps every record that a clean recovery finds.

Source: KIP-183, KIP-460; protocol rule 11.6.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final

from broker_layer.control.assignment import (
    LeaderMove,
    Loads,
    apply_moves,
    unclean_since,
    with_unclean,
)
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.topic_changes import translated
from broker_layer.errors import TopicError, unknown_partition
from broker_layer.handlers import RequestContext, Turns, answer
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ApiMessage, ElectLeadersRequest, ElectLeadersResponse
from metadata.errors import MetadataError
from metadata.topics.partition_store import PartitionKey
from metadata.topics.topic import PartitionLeadership, TopicRecord
from metadata.topics.topic_store import TopicStore

REPORT_CHECKS_MAX: Final = 20
"""Maximum number of checks, before an unclean election, whether the partitions are served."""
REPORT_CHECK_PERIOD_S: Final = 0.1
TYPED_VERSION: Final = 1
"""First version with a field for the kind of election. Before, all elect preferred leaders."""

_Planner = Callable[[TopicRecord, int, PartitionLeadership], LeaderMove]
"""Plans the election of one partition. Raises TopicError."""
_Topic = ElectLeadersResponse.ReplicaElectionResult
_Partition = _Topic.PartitionResult


class ElectionKind(IntEnum):
    """Kind of election, with Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class LeaderElections:
    """Handler of ElectLeaders. Any broker may receive the request."""

    def __init__(self, view: ClusterView, topics: TopicStore) -> None:
        self._view = view
        self._topics = topics

    async def elect(self, request: ElectLeadersRequest, context: RequestContext) -> ApiMessage:
        """Answer ElectLeaders."""
        kind = request.election_type if context.api_version >= TYPED_VERSION else 0
        if kind not in tuple(ElectionKind):
            return _all_refused(request, f"there are no elections of type {kind}")
        is_unclean = kind == ElectionKind.UNCLEAN
        asked_for_all = request.topic_partitions is None
        if is_unclean:
            await self._wait_reported(request)
        loads = Loads.of(self._view.topics.values() if is_unclean else (), self._view.may_lead())
        plan = partial(self._plan_unclean if is_unclean else self._plan_preferred, loads)
        results, turns = [], Turns()
        for topic, partitions in self._asked(request):
            await turns.pass_on()
            loads.keep(self._view.may_lead())
            outcomes = await self._elect(topic, partitions, plan, is_unclean=is_unclean)
            shown = [
                answer(_Partition, error, partition_id=partition)
                for partition, error in outcomes.items()
                # a request for all partitions is answered for those that needed an election
                if not (asked_for_all and error and error.code is ErrorCode.ELECTION_NOT_NEEDED)
            ]
            if shown:
                results.append(_Topic(topic=topic, partition_result=shown))
        return ElectLeadersResponse(replica_election_results=results)

    def _asked(self, request: ElectLeadersRequest) -> Iterable[tuple[str, Sequence[int]]]:
        if request.topic_partitions is None:
            return [
                (name, range(len(record.partitions)))
                for name, record in sorted(self._view.topics.items())
            ]
        return [(row.topic, list(row.partitions)) for row in request.topic_partitions]

    async def _wait_reported(self, request: ElectLeadersRequest) -> None:
        """Wait briefly until the leaders report the partitions, which they may have just got."""
        for _ in range(REPORT_CHECKS_MAX):
            if await self._are_served(request):
                return
            await asyncio.sleep(REPORT_CHECK_PERIOD_S)

    async def _are_served(self, request: ElectLeadersRequest) -> bool:
        turns = Turns()
        for topic, partitions in self._asked(request):
            await turns.pass_on()
            record = self._view.topics.get(topic)
            if record is not None and not all(
                self._is_served(record, partition)
                for partition in partitions
                if 0 <= partition < len(record.partitions)
            ):
                return False
        return True

    def _is_served(self, record: TopicRecord, partition: int) -> bool:
        seen = record.partitions[partition]
        report = self._view.reports.find(PartitionKey(record.topic_id, partition))
        if report is None or not report.replicas:
            return False  # the leader reports nothing, or that the partition is offline
        return report.leader_epoch == seen.leader_epoch and seen.leader in self._view.brokers

    async def _elect(
        self, topic: str, partitions: Sequence[int], plan: _Planner, *, is_unclean: bool
    ) -> Mapping[int, TopicError | None]:
        record = self._view.topics.get(topic)
        outcomes: dict[int, TopicError | None] = {}
        moves: list[LeaderMove] = []
        turns = Turns()
        for partition in dict.fromkeys(partitions):
            await turns.pass_on()
            if record is None or not 0 <= partition < len(record.partitions):
                outcomes[partition] = unknown_partition(topic, partition)
                continue
            try:
                moves.append(plan(record, partition, record.partitions[partition]))
                outcomes[partition] = None
            except TopicError as error:
                outcomes[partition] = error
        if not moves:
            return outcomes
        change: Callable[[TopicRecord], TopicRecord | None] = partial(apply_moves, moves=moves)
        if is_unclean:
            change = partial(_apply_unclean, moves=moves)
        try:
            changed = await self._topics.change(topic, change)
        except MetadataError as error:
            return outcomes | dict.fromkeys((move.partition for move in moves), translated(error))
        self._view.learn(changed)
        for move in moves:
            if not _is_made(changed, move, is_unclean=is_unclean):
                text = "the leadership changed during the election: retry"
                outcomes[move.partition] = TopicError(ErrorCode.REQUEST_TIMED_OUT, text)
        return outcomes

    def _plan_preferred(
        self, loads: Loads, record: TopicRecord, partition: int, seen: PartitionLeadership
    ) -> LeaderMove:
        if seen.leader == seen.preferred:
            text = f"broker {seen.leader} is the leader and the preferred leader"
            raise TopicError(ErrorCode.ELECTION_NOT_NEEDED, text)
        if seen.preferred not in loads.counts:
            text = (
                f"broker {seen.preferred}, the preferred leader, is not up or is stopping: start it"
            )
            raise TopicError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
        return LeaderMove(record.name, partition, seen, seen.preferred)

    def _plan_unclean(
        self, loads: Loads, record: TopicRecord, partition: int, seen: PartitionLeadership
    ) -> LeaderMove:
        if self._is_served(record, partition):
            text = f"broker {seen.leader} leads the partition"
            raise TopicError(ErrorCode.ELECTION_NOT_NEEDED, text)
        if not loads.counts:
            raise TopicError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                "no broker is up that may lead the partition: start one",
            )
        leader = seen.leader if seen.leader in loads.counts else loads.take_least()
        return LeaderMove(record.name, partition, seen, leader)


def _all_refused(request: ElectLeadersRequest, text: str) -> ElectLeadersResponse:
    refusal = TopicError(ErrorCode.INVALID_REQUEST, text)
    results = [
        _Topic(
            topic=row.topic,
            partition_result=[
                answer(_Partition, refusal, partition_id=number) for number in row.partitions
            ],
        )
        for row in request.topic_partitions or ()
    ]
    return answer(ElectLeadersResponse, refusal, replica_election_results=results)


def _is_made(record: TopicRecord, move: LeaderMove, *, is_unclean: bool) -> bool:
    if move.partition >= len(record.partitions):
        return False  # a new topic has the name now
    leadership = record.partitions[move.partition]
    if leadership.leader != move.leader:
        return False
    epoch = leadership.leader_epoch
    return not is_unclean or unclean_since(record.configs, move.partition, epoch) == epoch


def _apply_unclean(record: TopicRecord, moves: Sequence[LeaderMove]) -> TopicRecord | None:
    """Return the topic with the moves that still apply, and with their epochs marked unclean."""
    moved = apply_moves(record, moves)
    if moved is None:
        return None
    epochs = {
        partition: new.leader_epoch
        for partition, (new, old) in enumerate(
            zip(moved.partitions, record.partitions, strict=True)
        )
        if new.leader_epoch != old.leader_epoch
    }
    return moved.with_configs(with_unclean(record.configs, epochs))

"""Handlers of AlterPartitionReassignments and ListPartitionReassignments.

In Quire a reassignment places leadership: the first broker of a list becomes the preferred leader,
durably, and leads from now on. Bookies store the records, so no list moves copies: that is what
`quire bookie drain` does. Both are listed while they are under way.

Leaves taking over to the broker that becomes the leader, and moving ledgers to the processes of
repair.

Invariants: a partition is changed as its request says, or not at all and with an error; the
replication factor never changes. A partition without a leader has no reassignment in progress.

Source: KIP-455, KIP-860 (version 1); protocol rules 9.1 and 9.3; docs/topics.md, "Reassignments".
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_layer.control.bookie_states import BookieStates
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.led_partitions import ReplicaView
from broker_layer.control.topic_changes import translated
from broker_layer.errors import TopicError, unknown_partition
from broker_layer.handlers import RequestContext, Turns, answer
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ApiMessage,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from broker_layer.log.ledger_list import partition_of
from broker_layer.log.topic_configs import TopicDefaults, replication_factor
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.jobs import job_name_of
from metadata.store.child_names import ChildNames
from metadata.topics.partition_store import PartitionKey
from metadata.topics.replica_numbers import ReplicaNumbers
from metadata.topics.topic import (
    BROKER_ID_MAX,
    NO_LEADER,
    PartitionLeadership,
    TopicRecord,
)
from metadata.topics.topic_store import TopicStore

KEPT_S: Final = 5.0
"""Time for which the answer is kept, in seconds."""
READS_AT_ONCE: Final = 32


_Changed = AlterPartitionReassignmentsResponse.ReassignableTopicResponse


_ChangedPartition = _Changed.ReassignablePartitionResponse


_Listed = ListPartitionReassignmentsResponse.OngoingTopicReassignment


_ListedPartition = _Listed.OngoingPartitionReassignment


@dataclass(frozen=True, slots=True)
class MovingBookies:
    """Numbers of the bookies between which the ledgers of one partition are moved."""

    incoming: tuple[int, ...]
    """Those that copies are made on now."""
    leaving: tuple[int, ...]
    """Those that the copies are moved off."""


_NOTHING_MOVES: Final = MovingBookies((), ())


@dataclass(eq=False, repr=False)
class MovingLedgers:
    """The partitions with ledgers that jobs of repair name.

    A ledger belongs to the partition that its own metadata names. The ledgers of all jobs are read
    at most once in KEPT_S, at most READS_AT_ONCE at a time; there are at most
    `metadata.repair.job_store.JOBS_MAX` jobs.
    """

    _ledgers: LedgerStore
    _jobs: ChildNames
    _states: BookieStates
    _numbers: ReplicaNumbers
    _now: Callable[[], float]
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _kept: tuple[float, Mapping[PartitionKey, MovingBookies]] | None = field(
        default=None, init=False
    )

    async def by_partition(self) -> Mapping[PartitionKey, MovingBookies]:
        """Return the partitions with such ledgers. Raises MetadataError."""
        async with self._reading:
            if self._kept is None or self._now() - self._kept[0] > KEPT_S:
                self._kept = self._now(), await self._read()
            return self._kept[1]

    async def _read(self) -> Mapping[PartitionKey, MovingBookies]:
        names = filter(None, map(job_name_of, self._jobs.names))
        ledger_ids = list(dict.fromkeys(name.ledger_id for name in names))
        bookies: dict[PartitionKey, tuple[dict[BookieId, None], dict[BookieId, None]]] = {}
        for start in range(0, len(ledger_ids), READS_AT_ONCE):
            some = ledger_ids[start : start + READS_AT_ONCE]
            for ledger in await asyncio.gather(*map(self._ledger, some)):
                key = None if ledger is None else partition_of(ledger.custom)
                if ledger is None or key is None:
                    continue
                incoming, leaving = bookies.setdefault(key, ({}, {}))
                for fragment in ledger.fragments:
                    incoming |= dict.fromkeys(fragment.incoming)
                    leaving |= dict.fromkeys(filter(self._states.is_leaving, fragment.ensemble))
        return {
            key: MovingBookies(
                await self._numbers.numbers_of(incoming), await self._numbers.numbers_of(leaving)
            )
            for key, (incoming, leaving) in bookies.items()
        }

    async def _ledger(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        try:
            ledger, _ = await self._ledgers.get(ledger_id)
        except (NodeNotFoundError, MetadataFormatError):
            return None
        return ledger


@dataclass(eq=False, repr=False)
class Reassignments:
    """Handlers of reassignments. Any broker may receive the requests."""

    _view: ClusterView
    _topics: TopicStore
    _replicas: ReplicaView
    _moving: MovingLedgers
    _defaults: TopicDefaults

    # -- AlterPartitionReassignments -------------------------------------------------------------

    async def alter(
        self, request: AlterPartitionReassignmentsRequest, _: RequestContext
    ) -> ApiMessage:
        """Answer AlterPartitionReassignments. The changes are durable when it returns."""
        responses, turns = [], Turns()
        for topic in request.topics:
            await turns.pass_on()
            wanted = {
                row.partition_index: None if row.replicas is None else list(row.replicas)
                for row in topic.partitions
            }
            outcomes = await self._alter(topic.name, wanted)
            partitions = [
                answer(_ChangedPartition, error, partition_index=partition)
                for partition, error in outcomes.items()
            ]
            responses.append(_Changed(name=topic.name, partitions=partitions))
        return answer(
            AlterPartitionReassignmentsResponse,
            allow_replication_factor_change=bool(request.allow_replication_factor_change),
            responses=responses,
        )

    async def _alter(
        self, topic: str, wanted: Mapping[int, Sequence[int] | None]
    ) -> Mapping[int, TopicError | None]:
        outcomes: dict[int, TopicError | None] = {}

        def change(record: TopicRecord) -> TopicRecord | None:
            preferred, leaders = dict[int, int](), dict[int, int]()
            factor = replication_factor(record.configs, self._defaults)
            for partition, brokers in wanted.items():
                try:
                    leader = self._leader_of(record, partition, brokers, factor)
                except TopicError as error:
                    outcomes[partition] = error
                    continue
                outcomes[partition] = None
                preferred[partition] = leader
                if record.partitions[partition].leader != leader:
                    leaders[partition] = leader
            changed = record.with_preferred(preferred).with_leaders(leaders)
            return None if changed == record else changed

        if topic not in self._view.topics:
            return {number: unknown_partition(topic, number) for number in wanted}
        try:
            self._view.learn(await self._topics.change(topic, change))
        except MetadataError as error:
            return dict.fromkeys(wanted, translated(error))
        return outcomes

    def _leader_of(
        self, record: TopicRecord, partition: int, brokers: Sequence[int] | None, factor: int
    ) -> int:
        """Return who is to lead a partition from now on. Raises TopicError."""
        if record.is_deleted or not 0 <= partition < len(record.partitions):
            raise unknown_partition(record.name, partition)
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

    async def list(
        self, request: ListPartitionReassignmentsRequest, _: RequestContext
    ) -> ApiMessage:
        """Answer ListPartitionReassignments: what is not yet where it is to be."""
        try:
            moving = await self._moving.by_partition()
        except MetadataError as error:
            return answer(ListPartitionReassignmentsResponse, translated(error))
        topics = []
        for record, asked in self._asked(request):
            partitions = [
                listed
                for partition in asked
                if (listed := self._listed(record, partition, moving)) is not None
            ]
            if partitions:
                topics.append(_Listed(name=record.name, partitions=partitions))
        return answer(ListPartitionReassignmentsResponse, topics=topics)

    def _asked(
        self, request: ListPartitionReassignmentsRequest
    ) -> Sequence[tuple[TopicRecord, Sequence[int]]]:
        known = self._view.topics
        if request.topics is None:
            return [(known[name], range(len(known[name].partitions))) for name in sorted(known)]
        return [
            (
                record,
                [index for index in asked.partition_indexes if 0 <= index < len(record.partitions)],
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

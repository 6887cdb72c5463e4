"""One loaded partition of `__consumer_offsets`: its shard, its log, and its parked requests.

Leaves the choice of loaded partitions to `coordinator`, and the answers to the handlers.

Invariants: memory and log change together, in one order. No answer leaves before all earlier
changes are durable (`settled`), or after the broker's session may have lapsed. When the log fails,
all parked requests are answered with NOT_COORDINATOR, and nothing is served from memory any more.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError
from broker_layer.groups.records import RECORD_BYTES_MAX, GroupRecord, GroupRemoved, encode
from broker_layer.groups.shard import GroupShard
from broker_layer.groups.timers import Timers, loop_ms
from broker_layer.groups.values import (
    AnswerJoin,
    AnswerSync,
    ClassicAction,
    GroupState,
    JoinResult,
    Moment,
    StoreGroup,
    SyncResult,
    Waiter,
)
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import DurableLog


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of a broker."""

    wall_clock_ms: Callable[[], int]

    def moment(self) -> Moment:
        """Return the present time."""
        return Moment(loop_ms(), self.wall_clock_ms())


class GroupHost:
    """A partition that this broker coordinates."""

    def __init__(self, partition: int, shard: GroupShard, clock: Clock, timers: Timers) -> None:
        self.partition = partition
        self.shard = shard
        self.clock = clock
        self._timers = timers
        self._log: DurableLog | None = None
        self._last: asyncio.Future[None] | None = None
        self._joins: dict[Waiter, asyncio.Future[JoinResult]] = {}
        self._syncs: dict[Waiter, asyncio.Future[SyncResult]] = {}
        self._waiter_count = 0
        self._is_ended = False

    def start(self, log: DurableLog) -> None:
        """Begin to serve the loaded groups."""
        self._log = log
        now_ms = self.clock.moment().now_ms
        self.shard.finish_load(now_ms)
        for group_id in self.shard.group_ids():
            self._schedule(group_id)

    def end(self) -> None:
        """Stop serving, and answer all parked requests with NOT_COORDINATOR."""
        self._is_ended = True
        for group_id in self.shard.group_ids():
            self._timers.cancel((self.partition, group_id))
        for group_id, group in list(self.shard.groups.items()):
            self.perform(group_id, group.end(ErrorCode.NOT_COORDINATOR))

    async def aclose(self) -> None:
        """Stop serving, and close the log in order."""
        self.end()
        if self._log is not None:
            await self._log.aclose()

    @property
    def refusal(self) -> TopicError | None:
        """Why nothing may be answered from memory now; None if it may."""
        if self._is_ended or self._log is None:
            return self._moved()
        return self._log.lead_refusal

    # ---- the log -------------------------------------------------------------------------------

    def write(self, records: Iterable[GroupRecord]) -> None:
        """Append records and apply them in memory. Raises TopicError: NOT_COORDINATOR, an error of
        the log, or UNKNOWN_SERVER_ERROR for a record that is too large, as in Kafka.
        """
        if self._is_ended or self._log is None:
            raise self._moved()
        encoded = [(record, encode(record)) for record in records]
        largest = max((len(data) for _, data in encoded), default=0)
        if largest > RECORD_BYTES_MAX:
            text = (
                f"the group's record has {largest} bytes, more than the maximum of "
                f"{RECORD_BYTES_MAX}: use fewer members, or shorter subscriptions and metadata"
            )
            raise TopicError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        for record, data in encoded:
            self._last = self._log.append(data)
            self.shard.apply(record)

    async def settled(self) -> None:
        """Wait until all records written so far are durable. Raises TopicError NOT_COORDINATOR,
        also if another broker may be the coordinator by then.
        """
        if self._last is not None:
            await asyncio.shield(self._last)
        if self.refusal is not None:
            raise self.refusal

    async def confirmed(self) -> None:
        """Wait as `settled`, and until it is certain that no other broker was the coordinator
        before this call. Raises TopicError (see `DurableLog.confirm_lead`).
        """
        await self.settled()
        assert self._log is not None, "it is settled"
        await self._log.confirm_lead()
        await self.settled()

    def _moved(self) -> TopicError:
        text = (
            f"this broker no longer leads {CONSUMER_OFFSETS}-{self.partition}: find the group's "
            "coordinator again, and retry there"
        )
        return TopicError(ErrorCode.NOT_COORDINATOR, text)

    # ---- classic groups ------------------------------------------------------------------------

    def park_join(self) -> "tuple[Waiter, asyncio.Future[JoinResult]]":
        """Create the future of the answer to one JoinGroup."""
        future: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        waiter = self._next_waiter()
        self._joins[waiter] = future
        return waiter, future

    def park_sync(self) -> "tuple[Waiter, asyncio.Future[SyncResult]]":
        """Create the future of the answer to one SyncGroup."""
        future: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        waiter = self._next_waiter()
        self._syncs[waiter] = future
        return waiter, future

    def perform(self, group_id: str, actions: list[ClassicAction]) -> None:
        """Perform a group's actions; after a refused append, answer the rest with its error."""
        refused = ErrorCode.NONE
        for action in actions:
            match action:
                case AnswerJoin(waiter, result):
                    join = self._joins.pop(waiter)
                    if not join.done():
                        is_stored = refused is ErrorCode.NONE
                        join.set_result(
                            result if is_stored else JoinResult(refused, result.member_id)
                        )
                case AnswerSync(waiter, outcome):
                    sync = self._syncs.pop(waiter)
                    if not sync.done():
                        is_stored = refused is ErrorCode.NONE
                        sync.set_result(outcome if is_stored else SyncResult(refused))
                case StoreGroup(image):
                    try:
                        self.write([image])
                    except TopicError as error:
                        refused = error.code
                        self._store_failed(group_id, image.generation, error.code)
                    else:
                        self._report_when_stored(group_id, image.generation)
        self._schedule(group_id)

    def make_classic(self, group_id: str) -> None:
        """Remove a group of the other type if it has no members. Raises TopicError if it has."""
        consumers = self.shard.consumers.get(group_id)
        if consumers is not None:
            if consumers.members:
                text = (
                    f"group {group_id} has members of the consumer protocol: use "
                    "group.protocol=consumer, or stop these members first"
                )
                raise TopicError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
            self.write([GroupRemoved(group_id)])

    # ---- groups of KIP-848 ---------------------------------------------------------------------

    def require_no_classic_members(self, group_id: str) -> None:
        """Raise TopicError if a group of the other type has members."""
        classic = self.shard.groups.get(group_id)
        if classic is not None and (
            classic.state is not GroupState.EMPTY or classic.roster.pending
        ):
            text = f"Group {group_id} is not a consumer group."
            raise TopicError(ErrorCode.GROUP_ID_NOT_FOUND, text)

    def store_consumer(self, group_id: str) -> None:
        """Append the changes of a group; undo them if that fails. With its first member it replaces
        a group of the other type, which stays if nothing is stored. Raises TopicError.
        """
        group = self.shard.consumers.get(group_id)
        if group is not None:
            changed = group.changed_records()
            is_replacing = bool(changed) and self.shard.is_classic_stored(group_id)
            try:
                self.write([GroupRemoved(group_id), *changed] if is_replacing else changed)
                if changed:
                    self.shard.groups.pop(group_id, None)
            except TopicError:
                group.restore(self.clock.moment().now_ms)
                raise
            finally:
                self.shard.drop_if_unused(group_id)
                self._schedule(group_id)

    def on_due(self, group_id: str) -> None:
        """Carry out what is due in a group."""
        if self._is_ended:
            return
        group = self.shard.groups.get(group_id)
        consumers = self.shard.consumers.get(group_id)
        if group is not None:
            self.perform(group_id, group.on_time(self.clock.moment()))
            self.shard.drop_if_unused(group_id)
        elif consumers is not None:
            consumers.on_time(self.clock.moment())
            with contextlib.suppress(TopicError):  # then it is due again after another session
                self.store_consumer(group_id)

    def _report_when_stored(self, group_id: str, generation: int) -> None:
        group = self.shard.groups.get(group_id)
        assert self._last is not None
        assert group is not None

        def report(stored: "asyncio.Future[None]") -> None:
            is_stored = not stored.cancelled() and stored.exception() is None
            if is_stored and not self._is_ended and self.shard.groups.get(group_id) is group:
                self.perform(group_id, group.stored(generation, self.clock.moment()))

        self._last.add_done_callback(report)

    def _store_failed(self, group_id: str, generation: int, error: ErrorCode) -> None:
        group = self.shard.groups.get(group_id)
        if group is not None and not self._is_ended:
            moment = self.clock.moment()
            self.perform(group_id, group.store_failed(generation, error, moment))

    def _schedule(self, group_id: str) -> None:
        group = self.shard.groups.get(group_id) or self.shard.consumers.get(group_id)
        if group is not None and not self._is_ended:
            self._timers.set_at_latest((self.partition, group_id), group.next_deadline_ms())

    def _next_waiter(self) -> Waiter:
        self._waiter_count += 1
        return Waiter(self._waiter_count)

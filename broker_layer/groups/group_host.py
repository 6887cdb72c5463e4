"""One loaded partition of `__consumer_offsets`: its shard, its log, and its parked requests.

Leaves the choice of loaded partitions to `coordinator`, and the answers to the handlers.

Invariants: memory and log change together, in one order. No answer leaves before all earlier
changes are durable (`settled`), or after the broker's session may have lapsed. When the log fails,
all parked requests are answered with NOT_COORDINATOR, and nothing is served from memory any more.
"""

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, RECORD_BYTES_MAX, LedPartition
from broker_layer.errors import TopicError
from broker_layer.groups.classic_group import NEVER_MS
from broker_layer.groups.records import GroupRecord, GroupRemoved, encode
from broker_layer.groups.shard import GroupShard
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
from broker_layer.log.state_log import OpenDurableLog
from quire.server.overriding import override

TimerKey = tuple[int, str]
"""(partition, group id)."""


def loop_ms() -> int:
    """Return the loop's clock, rounded to the nearest millisecond. If it were rounded down, a timer
    could fire just before its millisecond, find nothing due, and be set for the same time again.
    """
    return round(asyncio.get_running_loop().time() * 1000)


class Timers:
    """Deadlines of groups, over one `call_at` of the event loop.

    A callback comes at the deadline or earlier. A later deadline for the same key does not move the
    timer, so a heartbeat costs nothing: the callback finds nothing due and sets the next one.
    """

    def __init__(self, on_due: Callable[[TimerKey], None]) -> None:
        self._on_due = on_due
        self._due_ms: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = NEVER_MS

    def set_at_latest(self, key: TimerKey, due_ms: int) -> None:
        """Call back for `key` at `due_ms` of the loop's clock, or earlier if already set so."""
        if due_ms >= self._due_ms.get(key, NEVER_MS):
            return
        self._due_ms[key] = due_ms
        heapq.heappush(self._heap, (due_ms, key))
        self._arm()

    def cancel(self, key: TimerKey) -> None:
        """Remove the deadline of a key."""
        self._due_ms.pop(key, None)

    def close(self) -> None:
        """Remove all deadlines."""
        self._due_ms.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        first_ms = self._heap[0][0] if self._heap else NEVER_MS
        if first_ms == self._handle_ms:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._handle_ms = first_ms
        if first_ms != NEVER_MS:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_at(first_ms / 1000, self._run)

    def _run(self) -> None:
        now_ms = loop_ms()
        self._handle, self._handle_ms = None, NEVER_MS
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, key = heapq.heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                self._on_due(key)
        self._arm()


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of a broker."""

    wall_clock_ms: Callable[[], int]

    def moment(self) -> Moment:
        """Return the present time."""
        return Moment(loop_ms(), self.wall_clock_ms())


class GroupHost(LedPartition):
    """A partition that this broker coordinates."""

    def __init__(self, number: int, shard: GroupShard, clock: Clock, timers: Timers) -> None:
        super().__init__(CONSUMER_OFFSETS, number)
        self.shard = shard
        self.clock = clock
        self._timers = timers
        self._last: asyncio.Future[None] | None = None
        self._joins: dict[Waiter, asyncio.Future[JoinResult]] = {}
        self._syncs: dict[Waiter, asyncio.Future[SyncResult]] = {}
        self._waiter_count = 0

    async def load(self, open_log: OpenDurableLog) -> None:
        """Load the groups, and begin to serve them. Raises as `open`."""
        await self.open(open_log, self.shard.load, self.shard.snapshot)
        now_ms = self.clock.moment().now_ms
        self.shard.finish_load(now_ms)
        for group_id in self.shard.group_ids():
            self._schedule(group_id)

    @override
    def end(self) -> None:
        """Stop serving, and answer all parked requests with NOT_COORDINATOR."""
        super().end()
        for group_id in self.shard.group_ids():
            self._timers.cancel((self.number, group_id))
        for group_id, group in list(self.shard.groups.items()):
            self.perform(group_id, group.end(ErrorCode.NOT_COORDINATOR))

    # ---- the log -------------------------------------------------------------------------------

    def write(self, records: Iterable[GroupRecord]) -> None:
        """Append records and apply them in memory. Raises TopicError: NOT_COORDINATOR, an error of
        the log, or UNKNOWN_SERVER_ERROR for a record that is too large, as in Kafka.
        """
        if self._has_ended or self._log is None:
            raise self._moved("is no longer led by this broker")
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
        await self.confirm_lead()
        await self.settled()

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
            text = (
                f"group {group_id} has members of the classic protocol, which cannot be moved "
                "while they run: use group.protocol=classic, or stop these members first"
            )
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
        if self._has_ended:
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
            if is_stored and not self._has_ended and self.shard.groups.get(group_id) is group:
                self.perform(group_id, group.stored(generation, self.clock.moment()))

        self._last.add_done_callback(report)

    def _store_failed(self, group_id: str, generation: int, error: ErrorCode) -> None:
        group = self.shard.groups.get(group_id)
        if group is not None and not self._has_ended:
            moment = self.clock.moment()
            self.perform(group_id, group.store_failed(generation, error, moment))

    def _schedule(self, group_id: str) -> None:
        group = self.shard.groups.get(group_id) or self.shard.consumers.get(group_id)
        if group is not None and not self._has_ended:
            self._timers.set_at_latest((self.number, group_id), group.next_deadline_ms())

    def _next_waiter(self) -> Waiter:
        self._waiter_count += 1
        return Waiter(self._waiter_count)

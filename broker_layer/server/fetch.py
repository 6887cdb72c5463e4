"""The Fetch API: returns available records, or waits for them.

Leaves the choice of partitions to `fetch_sessions`, the visibility of records to the partitions'
logs, and encoding to `kafka.fetch_codec`.

Source: KIP-74 (bytes), KIP-98 (isolation), KIP-219 (throttling), KIP-227 (sessions), KIP-320
(leader epochs), KIP-516 (topic ids).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from broker_layer.errors import TopicError
from broker_layer.handlers import Turns, slices
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.fetch_codec import (
    READ_COMMITTED,
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
    decode_fetch,
    encode_fetch_response,
)
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.primitives import NO_OFFSET, NULL_UUID, CurrentLeader
from broker_layer.kafka.record_batch import read_header
from broker_layer.kafka.versions import FETCH_TOPIC_ID_VERSION
from broker_layer.security.authorizer import Rights
from broker_layer.server.exchange import Exchange
from broker_layer.server.fetch_sessions import (
    FetchOwner,
    FetchPlan,
    FetchPosition,
    FetchSessions,
    SessionPartition,
)
from broker_layer.server.ports import ClusterNames, PartitionLog, PartitionLogs
from broker_layer.server.service_tools import (
    ServiceTools,
    UnreadableRecords,
    check_leader_epoch,
    record_request,
)
from metadata.security.acls import Operation, ResourceType
from quire.tracing import spans as tracing


@dataclass(slots=True)
class PartitionRead:
    """The result of one partition of a Fetch so far."""

    position: FetchPosition
    topic_name: str
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    batches: Sequence[Buffer] = ()
    aborted: Sequence[tuple[int, int]] = ()
    byte_count: int = 0
    read_up_to: int = NO_OFFSET
    """The end of the visible records at the last read."""

    log: PartitionLog | None = None
    rights: Rights | None = None
    """What the client may do; None without an authorizer."""

    @property
    def topic_id(self) -> bytes | None:
        """The topic's id, if the client names topics so."""
        topic = self.position.topic
        return topic if isinstance(topic, bytes) else None

    def refuse(self, error: ErrorCode) -> None:
        """Set an error, and drop the data."""
        self.error = error
        self.batches = ()
        self.aborted = ()
        self.byte_count = 0

    def note_ends(self, log: PartitionLog) -> None:
        """Copy the log's offsets."""
        self.log = log
        self.high_watermark = log.high_watermark
        self.last_stable_offset = log.last_stable_offset
        self.log_start_offset = log.log_start_offset


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Limits and isolation of one Fetch."""

    bytes_max: int
    reads_at_once: int
    read_committed: bool


class FetchReader:
    """Reader of the partitions of Fetches, within their limits of bytes.

    Invariants: at least one complete batch is returned if one is visible; except for the first
    batch and the last batch of each group of reads, an answer stays within the requested bytes; a
    partition is not read if the client's leader epoch for it is wrong, or while the client may not
    read it.
    """

    def __init__(
        self, logs: PartitionLogs, topics: ClusterNames, unreadable: UnreadableRecords
    ) -> None:
        self._logs = logs
        self._topics = topics
        self._unreadable = unreadable

    def begin(self, position: FetchPosition, rights: Rights | None = None) -> PartitionRead:
        """Find a partition's log, and check that the client may read it; nothing is read yet."""
        topic = position.topic
        name = topic if isinstance(topic, str) else self._topics.topic_name_of(topic)
        if name is None:
            return PartitionRead(position, "", error=ErrorCode.UNKNOWN_TOPIC_ID)
        read = PartitionRead(position, name, rights=rights)
        self.refresh(read)
        return read

    def refresh(self, read: PartitionRead) -> None:
        """Update a partition's offsets, or the error why it cannot be read."""
        position, rights = read.position, read.rights
        if rights and not rights.check(Operation.READ, ResourceType.TOPIC, read.topic_name):
            read.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return
        try:
            log = self._logs.log_of(read.topic_name, position.partition)
            check_leader_epoch(log, position.leader_epoch)
        except TopicError as error:
            read.refuse(error.code)
            return
        read.error = ErrorCode.NONE
        read.note_ends(log)
        if not log.log_start_offset <= position.offset <= log.log_end_offset:
            read.refuse(ErrorCode.OFFSET_OUT_OF_RANGE)

    async def refresh_new(self, reads: list[PartitionRead], bounds: ReadBounds) -> None:
        """Update, after a wait, the partitions that `read` reads."""
        turns = Turns()
        for some in slices(reads):
            for read in some:
                if _has_new_records(read, bounds):
                    self.refresh(read)
            await turns.pass_on()

    async def read(self, reads: list[PartitionRead], bounds: ReadBounds) -> int:
        """Read, in order, partitions with more visible records than were read before.

        Returns the bytes of all `reads`.
        """
        total = sum(read.byte_count for read in reads)
        waiting = [read for read in reads if _has_new_records(read, bounds)]
        for read in waiting:
            total -= read.byte_count
            read.byte_count = 0
        began, turns = 0, Turns()
        while began < len(waiting):
            room = bounds.bytes_max - total
            if room <= 0:
                break
            group = _next_group(waiting[began : began + bounds.reads_at_once], bounds, room)
            began += len(group)
            first, *others = group
            if not others:
                await self._read_one(first, room, bounds, at_least_one=not total)
            else:
                await asyncio.gather(
                    self._read_one(first, room, bounds, at_least_one=not total),
                    *(self._read_one(other, room, bounds, at_least_one=False) for other in others),
                )
            total += sum(read.byte_count for read in group)
            await turns.pass_on()
        return total

    async def _read_one(
        self, read: PartitionRead, room: int, bounds: ReadBounds, *, at_least_one: bool
    ) -> None:
        log, position = read.log, read.position
        assert log is not None, "`refresh` has found the log"
        try:
            result = await log.read(
                position.offset,
                max(min(room, position.bytes_max), 1),
                read_committed=bounds.read_committed,
                at_least_one=at_least_one,
            )
        except TopicError as error:
            self._unreadable.note(read.topic_name, position.partition, error)
            read.refuse(error.code)
            return
        read.batches = result.batches
        read.byte_count = sum(map(len, read.batches))
        read.high_watermark = result.high_watermark
        read.last_stable_offset = result.last_stable_offset
        read.log_start_offset = result.log_start_offset
        read.aborted = result.aborted
        read.read_up_to = visible_end(read, read_committed=bounds.read_committed)


class LogsWatch:
    """Registration of one callback with the logs of some reads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._watched: dict[int, tuple[PartitionLog, Callable[[], None]]] = {}

    def follow(self, reads: list[PartitionRead]) -> None:
        """Call back at the progress of the logs that the reads have now; an earlier log of a
        partition ended when this one replaced it.
        """
        for read in reads:
            log, cancel = self._watched.get(id(read), (None, None))
            if read.log is None or read.log is log:
                continue
            if cancel is not None:
                cancel()
            self._watched[id(read)] = read.log, read.log.on_progress(self._wake)

    def close(self) -> None:
        """End all registrations."""
        for _, cancel in self._watched.values():
            cancel()
        self._watched.clear()


def bytes_wanted(reads: list[PartitionRead], bounds: ReadBounds) -> int:
    """Return how many bytes the answer may take once `read` has read what is new."""
    total = 0
    for read in reads:
        is_new = _has_new_records(read, bounds)
        total += read.position.bytes_max if is_new else read.byte_count
    return min(total, bounds.bytes_max)


def was_cut(read: PartitionRead) -> bool:
    """Return whether more is visible after the returned batches of a partition.

    The next batch does not fit in the requested bytes.
    """
    if read.error or not read.batches:
        return False
    return read_header(read.batches[-1]).last_offset + 1 < read.read_up_to


def visible_end(read: PartitionRead, *, read_committed: bool) -> int:
    """Return the end of the records that this reader may see."""
    return read.last_stable_offset if read_committed else read.high_watermark


def _has_new_records(read: PartitionRead, bounds: ReadBounds) -> bool:
    if read.error or read.log is None:
        return False
    end = visible_end(read, read_committed=bounds.read_committed)
    return read.position.offset < end and end > read.read_up_to


def _next_group(waiting: list[PartitionRead], bounds: ReadBounds, room: int) -> list[PartitionRead]:
    """Return the first reads whose limits fit in the room together; at least one."""
    group: list[PartitionRead] = []
    for read in waiting:
        if group and read.position.bytes_max > room:
            break
        group.append(read)
        room -= read.position.bytes_max
    return group


class FetchService:
    """The Fetch API of one broker; belongs to one event loop.

    Invariants: a Fetch waits only while its result is below `min_bytes`, no partition has an error
    or more records than fit, and `max_wait_ms` has not passed; the progress of its partitions wakes
    it, also that of a log which replaced another one, it does not poll; a Fetch begins when every
    earlier request of its connection was answered, so at most one answer per connection is in
    memory; its bytes are reserved before it is read. What a Fetch has read takes room: it waits
    with it for no more room, and while others wait for room not for records either, but is answered
    with less than `min_bytes`.
    """

    def __init__(
        self,
        reader: FetchReader,
        sessions: FetchSessions,
        tools: ServiceTools,
    ) -> None:
        self._reader = reader
        self._sessions = sessions
        self._hints = tools.hints
        self._limits = tools.limits
        self._counters = tools.counters
        self._tasks = tools.tasks
        self._deadlines = tools.deadlines
        self._now = tools.now
        self._rights_of = tools.rights_of
        self._quotas = tools.quotas
        self._waiting: dict[int, asyncio.Event] = {}
        self._wait_id = 0
        self._holding: dict[int, Callable[[], None]] = {}
        """Of the waiting Fetches that hold room, what ends their waits."""
        self._lacking_room = 0
        """Number of Fetches that wait for room."""
        self._is_closing = False

    def serve(self, exchange: Exchange) -> None:
        """Begin to serve a Fetch; see `exchange.RawHandler`."""
        exchange.requester.when_first(exchange, partial(self._start, exchange))

    def end_sessions(self, connection_id: int) -> None:
        """End the sessions of a connection, because it is closed."""
        self._sessions.end_of(connection_id)
        self._counters.fetch_sessions_now = len(self._sessions)

    def close(self) -> None:
        """Answer all waiting Fetches now; later ones do not wait."""
        self._is_closing = True
        for event in self._waiting.values():
            event.set()

    def _start(self, exchange: Exchange) -> None:
        self._tasks.run(exchange, self._answer(exchange))

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.is_gone:
            return
        turns = Turns()
        request = decode_fetch(exchange.api_version, exchange.body)
        await turns.pass_on()
        if exchange.is_gone:
            return
        by_id = exchange.api_version >= FETCH_TOPIC_ID_VERSION
        now_s = self._now()
        asked: list[FetchPosition] = []
        for some in slices(_positions(request)):
            asked += some
            await turns.pass_on()
        if exchange.is_gone:
            return
        plan = self._sessions.plan(
            request.session_id,
            request.session_epoch,
            asked,
            _forgotten(request),
            owner=FetchOwner(exchange.requester.holder, exchange.requester.connection_id),
            uses_topic_ids=by_id,
            now_s=now_s,
        )
        self._counters.fetch_sessions_now = len(self._sessions)
        bounds = ReadBounds(
            bytes_max=min(max(request.bytes_max, 1), self._limits.fetch_bytes_max),
            reads_at_once=self._limits.fetch_reads_at_once,
            read_committed=request.isolation_level == READ_COMMITTED,
        )
        rights = self._rights_of(exchange)
        reads: list[PartitionRead] = []
        for positions in slices(plan.positions):
            reads += [self._reader.begin(position, rights) for position in positions]
            await turns.pass_on()
        total = await self._read(exchange, reads, bounds)
        await turns.pass_on()
        wait_s = min(max(request.max_wait_ms, 0) / 1000, self._limits.fetch_wait_s_max)
        if (
            wait_s
            and not (plan.error or exchange.is_gone)
            and not _is_enough(total, reads, request.bytes_min, bounds)
        ):
            await self._wait(exchange, turns, reads, bounds, request.bytes_min, wait_s)
        await self._finish(
            exchange, turns, plan, reads, now_s, read_committed=bounds.read_committed
        )

    async def _read(
        self, exchange: Exchange, reads: list[PartitionRead], bounds: ReadBounds
    ) -> int:
        """Read once there is room for the answer; keep the room of what was found."""
        wanted = bytes_wanted(reads, bounds)
        if not exchange.requester.reserve_now(exchange, wanted):
            await self._wait_for_room(exchange, wanted)
            await self._reader.refresh_new(reads, bounds)
        if exchange.is_gone:
            return 0
        total = await self._reader.read(reads, bounds)
        exchange.requester.reserve_now(exchange, min(total, exchange.reserved))
        return total

    async def _wait_for_room(self, exchange: Exchange, wanted: int) -> None:
        """Wait for room, which Fetches that wait for records give back."""
        self._lacking_room += 1
        holding, self._holding = self._holding, {}
        for end_wait in holding.values():
            end_wait()
        try:
            await exchange.requester.reserve(exchange, wanted)
        finally:
            self._lacking_room -= 1

    async def _wait(
        self,
        exchange: Exchange,
        turns: Turns,
        reads: list[PartitionRead],
        bounds: ReadBounds,
        bytes_min: int,
        wait_s: float,
    ) -> None:
        """Wait until there are enough records, a partition has an error, the time is over, or room
        is short.
        """
        self._wait_id += 1
        wait_id, event = self._wait_id, asyncio.Event()
        is_over = False

        def end_wait() -> None:
            nonlocal is_over
            is_over = True
            event.set()

        event.set()  # check at once: partitions may have moved while others were read
        self._waiting[wait_id] = event
        self._counters.fetches_waiting_now = len(self._waiting)
        tick = self._deadlines.add(wait_id, wait_s, end_wait)
        exchange.on_gone = end_wait
        watch = LogsWatch(event.set)
        try:
            for some in slices(reads):
                watch.follow(some)
                await turns.pass_on()
            while not (is_over or self._is_closing or any(read.error for read in reads)):
                if exchange.reserved:
                    if self._lacking_room:
                        return
                    self._holding[wait_id] = end_wait
                await event.wait()
                event.clear()
                for some in slices(reads):
                    for read in some:
                        self._reader.refresh(read)
                    watch.follow(some)
                    await turns.pass_on()
                if not exchange.requester.reserve_now(exchange, bytes_wanted(reads, bounds)):
                    return
                total = await self._read(exchange, reads, bounds)
                if _is_enough(total, reads, bytes_min, bounds):
                    return
        finally:
            watch.close()
            self._deadlines.remove(wait_id, tick)
            self._waiting.pop(wait_id, None)
            self._holding.pop(wait_id, None)
            self._counters.fetches_waiting_now = len(self._waiting)

    async def _finish(
        self,
        exchange: Exchange,
        turns: Turns,
        plan: FetchPlan,
        reads: list[PartitionRead],
        began_s: float,
        *,
        read_committed: bool,
    ) -> None:
        total, named = 0, list[PartitionRead]()
        for some in slices(reads):
            named += [read for read in some if self._must_name(read, plan)]
            total += sum(read.byte_count for read in some)
            await turns.pass_on()
        topics, leaders = list[FetchTopicResult](), list[CurrentLeader | None]()
        for some in slices(named):
            leaders += self._add_results(topics, some, read_committed=read_committed)
            await turns.pass_on()
        if exchange.is_gone:
            return
        now_s = self._now()
        throttle_s = self._quotas.record_fetch(exchange, total)
        self._counters.fetch_bytes += total
        self._counters.fetch_latency.record(now_s - began_s)
        if tracing.is_on():
            named_now = [(read.topic_name, read.position.partition, read.error) for read in reads]
            record_request("Fetch", now_s - began_s, named_now)
        body: list[Buffer] = []
        for piece in encode_fetch_response(
            exchange.api_version,
            topics,
            error_code=plan.error,
            session_id=plan.session_id,
            throttle_time_ms=int(throttle_s * 1000),
            node_endpoints=self._hints.endpoints(leaders, exchange.requester.listener),
        ):
            body += piece
            await turns.pass_on()
        exchange.answer(body)
        if throttle_s:
            exchange.requester.throttle(throttle_s)

    def _must_name(self, read: PartitionRead, plan: FetchPlan) -> bool:
        """Return whether the answer names a partition, and note what the client then knows."""
        if read.error:
            self._counters.note_error(read.error)
        has_news = read.position.must_name(
            byte_count=read.byte_count,
            error=read.error,
            high_watermark=read.high_watermark,
            log_start=read.log_start_offset,
        )
        if read.byte_count and plan.session is not None:
            plan.session.put_last(read.position)
        return has_news or not plan.is_incremental

    def _add_results(
        self, topics: list[FetchTopicResult], reads: list[PartitionRead], *, read_committed: bool
    ) -> list[CurrentLeader | None]:
        """Add the results of partitions to the last topic, or to new ones; return the leaders that
        they name.
        """
        leaders: list[CurrentLeader | None] = []
        for read in reads:
            topic_id = read.topic_id or NULL_UUID
            last = topics[-1] if topics else None
            if last is None or (last.name, last.topic_id) != (read.topic_name, topic_id):
                last = FetchTopicResult(read.topic_name, topic_id, [])
                topics.append(last)
            leader = None
            if read.error:
                leader = self._hints.leader_of(read.topic_name, read.position.partition, read.error)
                leaders.append(leader)
            last.partitions.append(
                FetchPartitionResult(
                    read.position.partition,
                    read.error,
                    read.high_watermark,
                    read.last_stable_offset,
                    read.log_start_offset,
                    read.aborted if read_committed else None,
                    read.batches,
                    leader,
                )
            )
        return leaders


def _is_enough(total: int, reads: list[PartitionRead], bytes_min: int, bounds: ReadBounds) -> bool:
    """Return whether a Fetch has enough bytes, or waiting would not add any."""
    return total >= min(bytes_min, bounds.bytes_max) or any(map(was_cut, reads))


def _positions(request: FetchRequest) -> Iterator[FetchPosition]:
    for topic in request.topics:
        key = topic.key
        for index, leader_epoch, offset, last_epoch, _, bytes_max in topic.partitions:
            yield FetchPosition(key, index, offset, max(bytes_max, 0), leader_epoch, last_epoch)


def _forgotten(request: FetchRequest) -> Iterator[SessionPartition]:
    for topic in request.forgotten:
        for partition in topic.partitions:
            yield topic.key, partition

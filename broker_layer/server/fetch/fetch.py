"""The Fetch API: returns available records, or waits for them.

Leaves the choice of partitions to `fetch_sessions`, reading them to `fetch_reading`, and encoding
to `kafka.fetch_codec`.

Invariants: a Fetch waits only while its result is below `min_bytes`, no partition has an error or
more records than fit, and `max_wait_ms` has not passed; the progress of its partitions wakes it,
also that of a log which replaced another one, it does not poll; a Fetch begins when every earlier
request of its connection was answered, so at most one answer per connection is in memory; its bytes
are reserved before it is read. What a Fetch has read takes room: it waits with it for no more room,
and while others wait for room not for records either, but is answered with less than `min_bytes`.

Source: KIP-227 (sessions), KIP-219 (throttling), KIP-74, KIP-98.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from broker_layer.kafka.fetch_codec import (
    READ_COMMITTED,
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
    decode_fetch,
    encode_fetch_response,
)
from broker_layer.kafka.leaders import CurrentLeader
from broker_layer.kafka.primitives import NULL_UUID
from broker_layer.kafka.versions import FETCH_TOPIC_ID_VERSION
from broker_layer.server.exchange import Buffer, Exchange
from broker_layer.server.fetch.fetch_reading import (
    FetchReader,
    LogsWatch,
    PartitionRead,
    ReadBounds,
    bytes_wanted,
    was_cut,
)
from broker_layer.server.fetch.fetch_sessions import (
    FetchOwner,
    FetchPlan,
    FetchPosition,
    FetchSessions,
)
from broker_layer.server.request_spans import record_request
from broker_layer.server.service_tools import ServiceTools
from broker_layer.turns import Turns, slices
from quire.tracing import spans as tracing


class FetchService:
    """The Fetch API of one broker; belongs to one event loop."""

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
        self._rights = tools.rights
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
        rights = self._rights.of(exchange)
        reads: list[PartitionRead] = []
        for positions in slices(plan.positions):
            reads += [self._reader.begin(each, rights) for each in positions]
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
            while not (is_over or self._is_closing or any(each.error for each in reads)):
                if exchange.reserved:
                    if self._lacking_room:
                        return
                    self._holding[wait_id] = end_wait
                await event.wait()
                event.clear()
                for some in slices(reads):
                    for each in some:
                        self._reader.refresh(each)
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
            named += [each for each in some if self._must_name(each, plan)]
            total += sum(each.byte_count for each in some)
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
            named_now = [(each.topic_name, each.position.partition, each.error) for each in reads]
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
        for each in reads:
            topic_id = each.topic_id or NULL_UUID
            last = topics[-1] if topics else None
            if last is None or (last.name, last.topic_id) != (each.topic_name, topic_id):
                last = FetchTopicResult(each.topic_name, topic_id, [])
                topics.append(last)
            leader = None
            if each.error:
                leader = self._hints.leader_of(each.topic_name, each.position.partition, each.error)
                leaders.append(leader)
            last.partitions.append(
                FetchPartitionResult(
                    each.position.partition,
                    each.error,
                    each.high_watermark,
                    each.last_stable_offset,
                    each.log_start_offset,
                    each.aborted if read_committed else None,
                    each.batches,
                    leader,
                )
            )
        return leaders


def _is_enough(total: int, reads: list[PartitionRead], bytes_min: int, bounds: ReadBounds) -> bool:
    """Return whether a Fetch has enough bytes, or waiting would not add any."""
    return total >= min(bytes_min, bounds.bytes_max) or any(map(was_cut, reads))


def _positions(request: FetchRequest) -> Iterator[FetchPosition]:
    for topic in request.topics:
        key = topic.name if topic.topic_id is None else topic.topic_id
        assert key is not None, "a topic has a name or an id"
        for index, leader_epoch, offset, last_epoch, _, bytes_max in topic.partitions:
            yield FetchPosition(key, index, offset, max(bytes_max, 0), leader_epoch, last_epoch)


def _forgotten(request: FetchRequest) -> Iterator[tuple[str | bytes, int]]:
    for topic in request.forgotten:
        key = topic.name if topic.topic_id is None else topic.topic_id
        assert key is not None, "a topic has a name or an id"
        for partition in topic.partitions:
            yield key, partition

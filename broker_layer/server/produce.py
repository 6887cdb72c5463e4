"""The Produce API: checks batches, appends them to their logs, and answers when all are committed.

Leaves rights to `broker_layer.security`, offsets, sequences and sizes to the logs, encoding to
`kafka.produce_codec`, and transactions to `produce_verification`.

Source: KIP-11 and KIP-98 (rights), KIP-110 (zstd), KIP-447, KIP-890 (verification), KIP-467
(messages of errors), KIP-91; the answers of Kafka 4.1.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from broker_layer.errors import RecordsRefusedError, TopicError
from broker_layer.handlers import Turns
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError, RecordError
from broker_layer.kafka.primitives import NO_OFFSET, NodeEndpoint
from broker_layer.kafka.produce_codec import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
    ProduceTopicResult,
    decode_produce,
    encode_appended,
    encode_produce_response,
)
from broker_layer.kafka.record_batch import (
    NO_TIMESTAMP,
    Compression,
    RecordBatchHeader,
    check_batch,
    only_batch,
    read_header,
    without_append_time,
)
from broker_layer.kafka.versions import PRODUCE_VERSION_MIN
from broker_layer.log.pending_batches import Appended
from broker_layer.security.authorizer import NOT_AUTHORIZED, Rights
from broker_layer.server.exchange import Exchange, Requester, timeout_of
from broker_layer.server.ports import PartitionLog, PartitionLogs
from broker_layer.server.produce_verification import ProduceVerification, Verified
from broker_layer.server.service_tools import ServiceTools, record_request
from broker_layer.transactions.values import TopicPartition
from metadata.cancelling import cancel_and_wait
from metadata.security.acls import Operation, ResourceType
from quire.tracing import spans as tracing

ZSTD_VERSION_MIN: Final = 7
"""The first version of Produce that allows zstd."""
TEXT_CHARACTERS_MAX: Final = 1_000
"""Maximum length of the text of one partition's error. It may name the topic, whose name in the
request has any length, and a request may have 10,000 partitions."""
ALL_ACKS: Final = (-1, 0, 1)
TIMEOUT_S_MAX: Final = 600.0
OPENING_WAIT_S_MAX: Final = 5.0
"""Maximum time that a Produce waits for a log that is being taken over, in seconds."""
PARTITIONS_AT_ONCE: Final = 1_500
"""Number of partitions above which a Produce waits for a turn: each takes 2 us or more, and a frame
of so many is a large request.
"""
APPENDING_S: Final = 0.01
"""Time after which the rest of a Produce goes on in turns with other large requests, in seconds. In
it some hundred batches are appended, unless their records are opened."""
LEADER_CHECKS_MAX: Final = 40
LEADER_CHECK_PERIOD_S: Final = 0.05
"""Maximum number of checks, and time between two in seconds, of a Produce with acks=0 for a log
that this broker does not know yet. A refused batch would be lost, and a client may learn of a new
topic earlier than this broker.
"""
LEADER_UNKNOWN_CODES: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


class RefusedTopic(NamedTuple):
    """A topic that the client may not write, with the error."""

    topic: ProduceTopic
    code: ErrorCode


class AdmittedProduce(NamedTuple):
    """A request with the topics that the client may write, and the refused ones."""

    request: ProduceRequest
    refused: Sequence[RefusedTopic] = ()


def admit(request: ProduceRequest, rights: Rights | None) -> AdmittedProduce:
    """Return the part of a request that is allowed; all without an authorizer.

    A topic that is refused is not waited for, and nothing is appended to it. Without the right on
    the transactional id, all topics are refused.
    """
    if rights is None:
        return AdmittedProduce(request)
    name, kind = request.transactional_id, ResourceType.TRANSACTIONAL_ID
    if name is not None and not rights.check(Operation.WRITE, kind, name):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        refused = [RefusedTopic(topic, code) for topic in request.topics]
        return AdmittedProduce(request._replace(topics=[]), refused)
    allowed, refused = [], []
    for topic in request.topics:
        if rights.check(Operation.WRITE, ResourceType.TOPIC, topic.name):
            allowed.append(topic)
        else:
            refused.append(RefusedTopic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return AdmittedProduce(request._replace(topics=allowed) if refused else request, refused)


def admit_again(asked: AdmittedProduce, rights: Rights | None) -> AdmittedProduce:
    """Return the part of a request that is still allowed after a wait."""
    now = admit(asked.request, rights)
    return now._replace(refused=[*asked.refused, *now.refused])


def read_batch(
    records: memoryview | None, api_version: int, transactional_id: str | None
) -> tuple[RecordBatchHeader, memoryview | bytearray]:
    """Return the header and the bytes of a partition's one batch, which a client may send in a
    request of this version.

    Raises RecordBatchError or TopicError. The bytes are a view of the request. If the
    client set the flag of append times, they are a copy without that flag.
    """
    if records is None:
        raise RecordBatchError(ErrorCode.INVALID_RECORD, "there is no record batch")
    header, batch = only_batch(records)
    if header.is_transactional and transactional_id is None:
        text = "the batch is transactional, but the request has no transactional id"
        raise TopicError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    check_batch(batch, header)
    if header.base_offset:
        text = f"the base offset is {header.base_offset}: it must be 0"
        raise RecordBatchError(ErrorCode.INVALID_RECORD, text)
    if api_version < ZSTD_VERSION_MIN and header.compression is Compression.ZSTD:
        text = f"zstd needs version {ZSTD_VERSION_MIN} of Produce, or later"
        raise RecordBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if header.uses_append_time:
        placed = without_append_time(batch)
        return read_header(placed), placed
    return header, batch


class ProduceRoom:
    """The connections whose partitions have no room; belongs to one event loop. A connection and a
    log have at most one wait; it also ends when the log ends.
    """

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], asyncio.Task[None]] = {}

    def wait(self, requester: Requester, log: PartitionLog) -> None:
        """Stop reading from a connection until a log has room."""
        key = (requester.connection_id, id(log))  # the task's reference keeps this id unique
        if key not in self._waits:
            requester.hold_reading(held=True)
            task = asyncio.get_running_loop().create_task(self._wait(key, requester, log))
            self._waits[key] = task

    async def close(self) -> None:
        """Cancel every wait."""
        await cancel_and_wait(*self._waits.values())

    async def _wait(self, key: tuple[int, int], requester: Requester, log: PartitionLog) -> None:
        try:
            await log.wait_for_room(0)
        finally:
            del self._waits[key]
            requester.hold_reading(held=False)


NOT_APPENDED: Final = Appended(NO_OFFSET, NO_TIMESTAMP, NO_OFFSET)


@dataclass(slots=True, eq=False)
class PartitionOutcome:
    """Result of one partition's batch."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    text: str | None = None
    records: Sequence[RecordError] = ()
    """The records because of which the batch was refused."""
    appended: Appended = NOT_APPENDED
    is_known: bool = False

    def refuse(self, error: ErrorCode, text: str) -> None:
        """Set the error of a refused batch."""
        self.error, self.text, self.is_known = error, text[:TEXT_CHARACTERS_MAX] or None, True

    def accept(self, appended: Appended) -> None:
        """Set the result of a committed append."""
        self.appended = appended
        self.is_known = True


@dataclass(slots=True, eq=False, repr=False)
class PendingProduce:
    """A Produce request whose batches are or were given to the logs.

    Invariants: a partition's result is the first of the append's result and REQUEST_TIMED_OUT,
    after which the append may still be committed; the request is answered when every partition has
    a result.
    """

    exchange: Exchange
    request: ProduceRequest
    _finish: Callable[["PendingProduce"], None]
    """Called once."""
    _failed: Callable[[Exchange, BaseException], None]
    """Called with every error that is not a TopicError."""
    outcomes: list[PartitionOutcome] = field(default_factory=list, init=False)
    is_over: bool = field(default=False, init=False)
    on_end: Callable[[], None] | None = field(default=None, init=False)
    """Called when the request is over, answered or not."""
    _waiting: int = field(default=1, init=False)
    """Number of appends that are awaited, and one until all batches were given to the logs."""

    def wait_for(self, outcome: PartitionOutcome, future: asyncio.Future[Appended]) -> None:
        """Set the outcome when the future of an append is done."""
        if future.done():
            self._take(outcome, future)
            return
        self._waiting += 1
        future.add_done_callback(partial(self._arrived, outcome))

    def finish_if_known(self) -> bool:
        """Answer if no append is awaited; return whether the request is over. Call it once, when
        all batches were given to the logs.
        """
        self._waiting -= 1
        if not self._waiting and not self.is_over:
            self._end()
        return self.is_over

    def time_out(self) -> None:
        """Answer now; uncommitted batches may still be committed later."""
        if self.is_over:
            return
        for outcome in self.outcomes:
            if not outcome.is_known:
                outcome.refuse(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "the batch was not committed in time; it may still be committed later",
                )
        self._end()

    def abandon(self) -> None:
        """End without an answer, because the connection is closed."""
        self.is_over = True
        if self.on_end is not None:
            self.on_end()

    def _arrived(self, outcome: PartitionOutcome, future: asyncio.Future[Appended]) -> None:
        self._waiting -= 1
        if not self.is_over:
            self._take(outcome, future)
            if not self._waiting:
                self._end()
        elif not future.cancelled():
            future.exception()  # mark it as retrieved: nothing else reads it

    def _take(self, outcome: PartitionOutcome, future: asyncio.Future[Appended]) -> None:
        if future.cancelled():
            outcome.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the append was cancelled")
            return
        error = future.exception()
        if error is None:
            outcome.accept(future.result())
        elif isinstance(error, TopicError):
            outcome.refuse(error.code, error.text)
        else:
            self._failed(self.exchange, error)
            outcome.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "the append failed")

    def _end(self) -> None:
        self.is_over = True
        if self.on_end is not None:
            self.on_end()
        self._finish(self)


NO_VERIFICATION: Final = Verified()
"""For requests that need no confirmation by a coordinator; it stays empty."""


class ProduceService:
    """The Produce API of one broker; belongs to one event loop.

    Invariants: the batches of one connection reach the logs in the order in which they came, also
    if one must wait for the confirmation of its transaction; a batch may take long, because checks
    of its records open it, and other requests are served between two of them; nothing is appended
    for a transaction that its coordinator does not know; requests with acks=0 get no answer, and an
    error closes their connection; a connection whose partition has no room is not read.
    """

    def __init__(
        self,
        logs: PartitionLogs,
        verification: ProduceVerification,
        room: ProduceRoom,
        tools: ServiceTools,
    ) -> None:
        self._logs = logs
        self._verification = verification
        self._room = room
        self._hints = tools.hints
        self._quotas = tools.quotas
        self._counters = tools.counters
        self._tasks = tools.tasks
        self._deadlines = tools.deadlines
        self._now = tools.now
        self._rights_of = tools.rights_of
        self._queues: dict[int, deque[Exchange]] = {}
        """For each connection with a waiting Produce: the Produces that wait for it."""
        self._wait_id = 0

    def serve(self, exchange: Exchange) -> None:
        """Begin to serve a Produce; see `exchange.RawHandler`."""
        if self._queues:
            queue = self._queues.get(exchange.requester.connection_id)
            if queue is not None:
                queue.append(exchange)
                return
        asked = self._admitted(exchange)
        if self._must_wait(asked.request):
            self._serve_later(exchange, partial(self._verify_and_append, exchange, asked))
            return
        appending = self._append(exchange, asked, NO_VERIFICATION)
        end_s = self._now() + APPENDING_S
        if any(self._now() >= end_s for _ in appending):
            self._serve_later(exchange, partial(_complete, appending))

    def end_queue(self, connection_id: int) -> None:
        """Drop the Produces that wait on a connection, because it is closed."""
        self._queues.pop(connection_id, None)

    def _admitted(self, exchange: Exchange) -> AdmittedProduce:
        request = decode_produce(exchange.api_version, exchange.body)
        return admit(request, self._rights_of(exchange))

    def _serve_later(self, exchange: Exchange, serve: Callable[[], Awaitable[None]]) -> None:
        queue = self._queues[exchange.requester.connection_id] = deque[Exchange]()
        self._tasks.run(exchange, self._serve_in_turn(exchange, serve, queue))

    async def _serve_in_turn(
        self, exchange: Exchange, serve: Callable[[], Awaitable[None]], queue: deque[Exchange]
    ) -> None:
        """Serve a Produce that must wait, then those that came after it during the wait. It may be
        refused before this begins: then its connection is closed, which ends the queue.
        """
        requester = exchange.requester
        requester.hold_reading(held=True)
        try:
            await serve()
            turns = Turns()
            while queue:
                await turns.pass_on()
                following = queue.popleft()
                if following.is_gone:
                    continue
                asked = self._admitted(following)
                if self._must_wait(asked.request):
                    await self._verify_and_append(following, asked)
                else:
                    await _complete(self._append(following, asked, NO_VERIFICATION))
        finally:
            self.end_queue(requester.connection_id)
            requester.hold_reading(held=False)

    def _must_wait(self, request: ProduceRequest) -> bool:
        opening, count = self._logs.opening, 0
        for name, partitions in request.topics:
            count += len(partitions)
            if count > PARTITIONS_AT_ONCE:
                return True  # for its turn among the large requests
            for index, _ in partitions:
                if opening(name, index) is not None:
                    return True
        if request.transactional_id is not None and self._verification.is_needed(request):
            return True
        return request.acks == 0 and self._is_early(request)

    def _is_early(self, request: ProduceRequest) -> bool:
        """Return whether a request with acks=0 names a log that this broker may learn of soon. A
        client that wants no answer cannot send its batches again.
        """
        return request.acks == 0 and any(
            self._is_unknown(topic.name, index)
            for topic in request.topics
            for index, _ in topic.partitions
        )

    def _is_unknown(self, topic: str, partition: int) -> bool:
        try:
            self._logs.log_of(topic, partition)
        except TopicError as error:
            return error.code in LEADER_UNKNOWN_CODES
        return False

    def _openings(self, request: ProduceRequest) -> list[asyncio.Event]:
        """Return the events that are set when the takeovers of the request's logs have ended."""
        return [
            event
            for topic in request.topics
            for index, _ in topic.partitions
            if (event := self._logs.opening(topic.name, index)) is not None
        ]

    async def _verify_and_append(self, exchange: Exchange, asked: AdmittedProduce) -> None:
        request = asked.request
        for _ in range(LEADER_CHECKS_MAX):
            if not self._is_early(request) or self._openings(request):
                break
            await asyncio.sleep(LEADER_CHECK_PERIOD_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_of(request.timeout_ms, OPENING_WAIT_S_MAX)):
                for event in self._openings(request):
                    await event.wait()
        verified = await self._verification.verify(request, exchange.api_version)
        try:
            asked = admit_again(asked, self._rights_of(exchange))
            await _complete(self._append(exchange, asked, verified))
        finally:
            verified.release()

    def _append(
        self, exchange: Exchange, asked: AdmittedProduce, verified: Verified
    ) -> Iterator[None]:
        """Append the batches; yield between two, where other requests may be served."""
        request = asked.request
        pending = PendingProduce(exchange, request, self._finish, self._tasks.note_unexpected)
        refused = _refused_whole(exchange, request)
        outcomes = pending.outcomes
        for name, partitions in request.topics:
            for index, records in partitions:
                if outcomes:
                    yield
                outcome = PartitionOutcome(name, index)
                outcomes.append(outcome)
                if refused is not None:
                    outcome.refuse(*refused)
                else:
                    self._append_one(pending, verified, outcome, records)
        for topic, code in asked.refused:
            for index, _ in topic.partitions:
                outcome = PartitionOutcome(topic.name, index)
                outcome.refuse(code, NOT_AUTHORIZED)
                outcomes.append(outcome)
        if request.acks == 0:
            self._end_without_answer(exchange, pending)
        elif not pending.finish_if_known():
            self._wait(exchange, pending, request.timeout_ms)

    def _append_one(
        self,
        pending: PendingProduce,
        verified: Verified,
        outcome: PartitionOutcome,
        records: memoryview | None,
    ) -> None:
        try:
            log = self._logs.log_of(outcome.topic, outcome.partition)
            exchange, request = pending.exchange, pending.request
            header, batch = read_batch(records, exchange.api_version, request.transactional_id)
            one = request.acks == 1
            if header.is_transactional:
                place = TopicPartition(outcome.topic, outcome.partition)
                future = verified.append(place, log, header, batch, waits_for_one=one)
            else:
                future = log.append(header, batch, waits_for_one=one)
        except (TopicError, RecordBatchError) as error:
            outcome.refuse(error.code, error.text)
            if isinstance(error, RecordsRefusedError):
                outcome.records = error.records
            return
        counters = self._counters
        counters.produce_batches += 1
        counters.produce_bytes += header.size_bytes
        counters.produce_records += header.record_count
        pending.wait_for(outcome, future)
        if not log.has_room:
            self._room.wait(exchange.requester, log)

    def _wait(self, exchange: Exchange, pending: PendingProduce, timeout_ms: int) -> None:
        self._wait_id += 1
        wait_id = self._wait_id
        delay_s = timeout_of(timeout_ms, TIMEOUT_S_MAX)
        tick = self._deadlines.add(wait_id, delay_s, pending.time_out)
        pending.on_end = lambda: self._deadlines.remove(wait_id, tick)
        exchange.on_gone = pending.abandon

    def _finish(self, pending: PendingProduce) -> None:
        now_s = self._now()
        exchange = pending.exchange
        refused = [row for row in pending.outcomes if row.error]
        for outcome in refused:
            self._counters.note_error(outcome.error)
        if pending.request.acks == 0:
            if refused:
                self._drop_failed(exchange, refused[0])
            return
        self._counters.produce_latency.record(now_s - exchange.arrived_s)
        if tracing.is_on():
            named = [(row.topic, row.partition, row.error) for row in pending.outcomes]
            record_request("Produce", now_s - exchange.arrived_s, named)
        throttle_s = self._quotas.record_produce(exchange)
        outcomes = pending.outcomes
        if len(outcomes) == 1 and not refused and not throttle_s:
            (only,) = outcomes
            version = exchange.api_version
            body = encode_appended(version, only.topic, only.partition, only.appended)
            exchange.answer([body])
            return
        topics = self._results(outcomes)
        body = encode_produce_response(
            exchange.api_version,
            topics,
            throttle_time_ms=int(throttle_s * 1000) if throttle_s else 0,
            node_endpoints=self._endpoints(topics, exchange) if refused else (),
        )
        exchange.answer([body])
        if throttle_s:
            exchange.requester.throttle(throttle_s)

    def _results(self, outcomes: list[PartitionOutcome]) -> list[ProduceTopicResult]:
        topics: list[ProduceTopicResult] = []
        rows: list[ProducePartitionResult] = []
        name: str | None = None
        for outcome in outcomes:
            if outcome.topic != name:
                rows, name = [], outcome.topic
                topics.append(ProduceTopicResult(name, rows))
            error, partition = outcome.error, outcome.partition
            leader = self._hints.leader_of(name, partition, error) if error else None
            rows.append(
                ProducePartitionResult(
                    partition, error, *outcome.appended, outcome.text, leader, outcome.records
                )
            )
        return topics

    def _endpoints(
        self, topics: list[ProduceTopicResult], exchange: Exchange
    ) -> list[NodeEndpoint]:
        leaders = [partition.current_leader for topic in topics for partition in topic.partitions]
        return self._hints.endpoints(leaders, exchange.requester.listener)

    def _end_without_answer(self, exchange: Exchange, pending: PendingProduce) -> None:
        """End a request with acks=0; a later failure closes its connection."""
        throttle_s = self._quotas.record_produce(exchange)
        exchange.finish([])
        exchange.requester.throttle(throttle_s)
        pending.finish_if_known()

    def _drop_failed(self, exchange: Exchange, outcome: PartitionOutcome) -> None:
        name, place = outcome.error.name, f"{outcome.topic}-{outcome.partition}"
        why = f"a batch with acks=0 for {place} was refused with {name}: {outcome.text}"
        exchange.requester.drop("unanswerable refusal", why)


async def _complete(appending: Iterator[None]) -> None:
    turns = Turns()
    for _ in appending:
        await turns.pass_on()


def _refused_whole(exchange: Exchange, request: ProduceRequest) -> tuple[ErrorCode, str] | None:
    """Return why no batch of a request can be accepted, or None."""
    if exchange.api_version < PRODUCE_VERSION_MIN:
        text = "only record batches of magic 2 are supported"
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text
    if request.acks not in ALL_ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}"
    return None

"""The Produce API: checks batches, appends them to their logs, and answers when all are committed.

Leaves rights to `produce_rights`, collecting the results to `pending_produce`, offsets, sequences
and sizes to the logs, encoding to `kafka.produce_codec`, and transactions to their coordinators.

Invariants: the batches of one connection reach the logs in the order in which they came, also if
one must wait for the confirmation of its transaction; a batch may take long, because checks of its
records open it, and other requests are served between two of them; nothing is appended for a
transaction that its coordinator does not know; requests with acks=0 get no answer, and an error
closes their connection; a connection whose partition has no room is not read.

Source: KIP-98, KIP-447, KIP-890 (verification), KIP-467, KIP-91.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from broker_layer.errors import RecordsRefusedError, TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.leaders import NodeEndpoint
from broker_layer.kafka.produce_codec import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    decode_produce,
    encode_appended,
    encode_produce_response,
)
from broker_layer.kafka.versions import PRODUCE_VERSION_MIN
from broker_layer.security.rights import NOT_AUTHORIZED
from broker_layer.server.deadlines import timeout_of
from broker_layer.server.exchange import Exchange
from broker_layer.server.ports import PartitionLogs
from broker_layer.server.produce.pending_produce import PartitionOutcome, PendingProduce
from broker_layer.server.produce.produce_checks import read_batch
from broker_layer.server.produce.produce_rights import AdmittedProduce, admit, admit_again
from broker_layer.server.produce.produce_room import ProduceRoom
from broker_layer.server.produce.produce_verification import ProduceVerification, Verified
from broker_layer.server.request_spans import record_request
from broker_layer.server.service_tools import ServiceTools
from broker_layer.transactions.values import TopicPartition
from broker_layer.turns import Turns
from quire.tracing import spans as tracing

ALL_ACKS: Final = (-1, 0, 1)
NO_VERIFICATION: Final = Verified()
"""For requests that need no confirmation by a coordinator; it stays empty."""
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


class ProduceService:
    """The Produce API of one broker; belongs to one event loop."""

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
        self._rights = tools.rights
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
        return admit(request, self._rights.of(exchange))

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
            asked = admit_again(asked, self._rights.of(exchange))
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
        refused = [each for each in pending.outcomes if each.error]
        for outcome in refused:
            self._counters.note_error(outcome.error)
        if pending.request.acks == 0:
            if refused:
                self._drop_failed(exchange, refused[0])
            return
        self._counters.produce_latency.record(now_s - exchange.arrived_s)
        if tracing.is_on():
            named = [(each.topic, each.partition, each.error) for each in pending.outcomes]
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
        for each in outcomes:
            if each.topic != name:
                rows, name = [], each.topic
                topics.append(ProduceTopicResult(name, rows))
            error, partition = each.error, each.partition
            leader = self._hints.leader_of(name, partition, error) if error else None
            rows.append(
                ProducePartitionResult(
                    partition, error, *each.appended, each.text, leader, each.records
                )
            )
        return topics

    def _endpoints(
        self, topics: list[ProduceTopicResult], exchange: Exchange
    ) -> list[NodeEndpoint]:
        leaders = [each.current_leader for topic in topics for each in topic.partitions]
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

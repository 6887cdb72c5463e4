"""Sender of markers to the leaders of their partitions, with retries until they are stored.

Leaves the requests to `markers`, connections to `broker_layer.peer`, and the effect of a stored
marker on its transaction to `coordinator`.

Invariants: an entry is in exactly one place: paused, queued for a broker, being sent, or being
compared with the record of its topic. At most one request per broker is being sent, so markers
arrive in the order of sending. An entry is dropped only when it is stored, its topic is gone by a
record that was read since, or its job is cancelled: the view of the cluster may be old. After a job
is cancelled, nothing is reported to it.

Source: KIP-98, "Complete the transaction"; topics design, "The mapping".
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from broker_layer.errors import TopicError
from broker_layer.handlers import Turns, slices
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.peer import PeerAddress
from broker_layer.transactions.leaders import LocalMarkers, NoLeader, PartitionLeaders
from broker_layer.transactions.values import Marker, TopicPartition, TransactionConfig
from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class MarkerJob:
    """The marker of one transaction; `on_stored` is called for each partition that stored it."""

    transactional_id: str
    marker: Marker
    on_stored: Callable[[TopicPartition], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the job: this broker no longer coordinates the transaction."""
        self.is_cancelled = True

    def report(self, partition: TopicPartition) -> None:
        """Report that a partition stored the marker, or is gone."""
        if not self.is_cancelled:
            self.on_stored(partition)


@dataclass(slots=True)
class MarkerEntry:
    """One partition's part of a job."""

    job: MarkerJob
    partition: TopicPartition
    attempts: int = 0
    absent_since: float | None = None
    """The loop's time at which the topic was first missing from the view."""


class RemoteMarkers(Protocol):
    """Writes markers to partitions that another broker leads (`marker_messages.PeerMarkers`)."""

    def write(
        self, address: PeerAddress, markers: Sequence[tuple[TopicPartition, Marker]]
    ) -> Awaitable[list[ErrorCode]]:
        """Return one code per marker. Raises TopicError if the outcome is unknown."""


@dataclass(eq=False, repr=False)
class MarkerSender:
    """Sends all markers of one broker's transactions."""

    _own_id: int
    _leaders: PartitionLeaders
    _local: LocalMarkers
    _remote: RemoteMarkers
    _config: TransactionConfig
    _rng: Random
    _queues: dict[int, deque[MarkerEntry]] = field(default_factory=dict, init=False)
    """Queues by broker; each exists while a task drains it."""
    _pauses: dict[int, tuple[asyncio.TimerHandle, list[MarkerEntry]]] = field(
        default_factory=dict, init=False
    )
    _pause_count: int = field(default=0, init=False)
    _cut: asyncio.TimerHandle | None = field(default=None, init=False)
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks, init=False)

    def send(self, job: MarkerJob, partitions: Iterable[TopicPartition]) -> None:
        """Start a job; report each of its partitions to it."""
        self._dispatch([MarkerEntry(job, partition) for partition in partitions])

    def retry_soon(self) -> None:
        """Look for the leaders of all markers that wait again, because leaders changed: end their
        pauses, and take them out of the queues of brokers, which may not answer for long. Many
        calls in a short time act once.
        """
        if self._cut is None and (self._pauses or any(self._queues.values())):
            loop = asyncio.get_running_loop()
            self._cut = loop.call_later(self._config.marker_pause_first_s, self._cut_waits)

    async def aclose(self) -> None:
        """Stop; the next coordinator sends the markers that were not stored."""
        if self._cut is not None:
            self._cut.cancel()
        for timer, _ in self._pauses.values():
            timer.cancel()
        self._pauses.clear()
        await self._tasks.aclose()

    def _cut_waits(self) -> None:
        self._cut = None
        paused, self._pauses = self._pauses, {}
        for timer, entries in paused.values():
            timer.cancel()
            self._dispatch(entries)
        for queue in list(self._queues.values()):
            queued = list(queue)
            queue.clear()
            self._dispatch(queued)

    def _dispatch(self, entries: Iterable[MarkerEntry]) -> None:
        later: list[MarkerEntry] = []
        own: list[MarkerEntry] = []
        doubtful: list[MarkerEntry] = []
        for entry in entries:
            if entry.job.is_cancelled:
                continue
            leader = self._leaders.leader_of(entry.partition)
            if isinstance(leader, NoLeader):
                (doubtful if self._may_be_gone(entry, leader) else later).append(entry)
            elif leader.broker_id == self._own_id:
                own.append(entry)
            else:
                self._queue(leader, entry)
        if own:
            self._tasks.start(self._write_here(own))
        if doubtful:
            self._tasks.start(self._drop_gone(doubtful))
        self._retry_later(later)

    def _may_be_gone(self, entry: MarkerEntry, why: NoLeader) -> bool:
        now = asyncio.get_running_loop().time()
        if why is not NoLeader.ABSENT:
            entry.absent_since = None
            return why is NoLeader.DELETED
        if entry.absent_since is None:
            entry.absent_since = now
        return now - entry.absent_since >= self._config.absent_topic_patience_s

    async def _drop_gone(self, entries: list[MarkerEntry]) -> None:
        """Drop the entries whose topics are gone by their records; send the others again later."""
        topics = dict.fromkeys(entry.partition.topic for entry in entries)
        counts = {topic: await self._stored_count(topic) for topic in topics}
        there: list[MarkerEntry] = []
        for entry in entries:
            count = counts[entry.partition.topic]
            if count is None or entry.partition.partition < count:
                entry.absent_since = None
                there.append(entry)
                continue
            _log.info(
                "transaction %r: %s-%d is gone and needs no marker",
                entry.job.transactional_id,
                entry.partition.topic,
                entry.partition.partition,
            )
            entry.job.report(entry.partition)
        self._retry_later(there)

    async def _stored_count(self, topic: str) -> int | None:
        try:
            return await self._leaders.stored_count(topic)
        except MetadataError as error:
            _log.info("the record of topic %s cannot be read now: %s", topic, error)
            return None

    def _queue(self, leader: PeerAddress, entry: MarkerEntry) -> None:
        entry.absent_since = None
        queue = self._queues.get(leader.broker_id)
        if queue is None:
            queue = self._queues[leader.broker_id] = deque()
            self._tasks.start(self._drain(leader, queue))
        queue.append(entry)

    async def _drain(self, leader: PeerAddress, queue: deque[MarkerEntry]) -> None:
        try:
            while batch := self._take(queue):
                await self._write_there(leader, batch)
        finally:
            del self._queues[leader.broker_id]

    def _take(self, queue: deque[MarkerEntry]) -> list[MarkerEntry]:
        batch: list[MarkerEntry] = []
        while queue and len(batch) < self._config.markers_per_request_max:
            entry = queue.popleft()
            if not entry.job.is_cancelled:
                batch.append(entry)
        return batch

    async def _write_there(self, leader: PeerAddress, batch: list[MarkerEntry]) -> None:
        markers = [(entry.partition, entry.job.marker) for entry in batch]
        try:
            codes = await self._remote.write(leader, markers)
        except TopicError as error:
            _log.info(
                "broker %d did not confirm markers; they are sent again: %s",
                leader.broker_id,
                error,
            )
            self._retry_later(batch)
        else:
            self._settle(batch, codes)

    async def _write_here(self, batch: list[MarkerEntry]) -> None:
        """Append markers without waiting for the commit of any: each is settled by itself, because
        they are those of many transactions, and a partition may not commit for minutes.
        """
        turns = Turns()
        for some in slices(batch):
            for entry in some:
                if not entry.job.is_cancelled:
                    write = self._local.write(entry.partition, entry.job.marker)
                    self._tasks.start(self._settle_one(entry, write))
            await turns.pass_on()

    async def _settle_one(self, entry: MarkerEntry, write: Awaitable[ErrorCode]) -> None:
        self._settle([entry], [await _code_of(write)])

    def _settle(self, batch: list[MarkerEntry], codes: list[ErrorCode]) -> None:
        again: list[MarkerEntry] = []
        for entry, code in zip(batch, codes, strict=True):
            match code:
                case ErrorCode.NONE:
                    entry.job.report(entry.partition)
                case ErrorCode.INVALID_PRODUCER_EPOCH:
                    # A later epoch is assigned only after this transaction is complete, so its
                    # marker is already stored.
                    entry.job.report(entry.partition)
                case ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    _log.warning(
                        "transaction %r has a newer coordinator, its markers are no longer sent",
                        entry.job.transactional_id,
                    )
                    entry.job.cancel()
                case _:
                    again.append(entry)
        self._retry_later(again)

    def _retry_later(self, entries: list[MarkerEntry]) -> None:
        entries = [entry for entry in entries if not entry.job.is_cancelled]
        if not entries:
            return
        for entry in entries:
            entry.attempts += 1
        doublings = min(entry.attempts for entry in entries) - 1
        bound = self._config.marker_pause_first_s * (1 << min(doublings, 30))
        pause = min(self._config.marker_pause_max_s, bound) * (0.5 + self._rng.random() / 2)
        loop = asyncio.get_running_loop()
        self._pause_count += 1
        timer = loop.call_later(pause, self._resume, self._pause_count)
        self._pauses[self._pause_count] = (timer, entries)

    def _resume(self, number: int) -> None:
        _, entries = self._pauses.pop(number)
        self._dispatch(entries)


async def _code_of(write: Awaitable[ErrorCode]) -> ErrorCode:
    try:
        return await write
    except TopicError as error:
        return error.code

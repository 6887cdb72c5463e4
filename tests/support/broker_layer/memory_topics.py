"""Topics in memory, for tests of the server without ledgers.

Leaves rolling, fencing and replication to the real log; batches commit in the next step of the
event loop, or when a test requests it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.record_batch import RecordBatchHeader, parse_records, place
from broker_layer.log.log_reader import RecordPosition
from broker_layer.log.pending_batches import Appended, MayOpen, never_opens
from broker_layer.log.state.partition_state import ActiveProducer
from broker_layer.log.topic_log import LogReadResult
from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification import Confirmation, VerificationGuards
from metadata.callbacks import Callbacks

BATCH_BYTES_MAX = 2**20 + 1000


@dataclass(slots=True)
class MemoryLog:
    """One partition."""

    leader_epoch: int = 3
    commits_itself: bool = True
    keeps: bool = True
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    has_room: bool = True
    refusal: TopicError | None = None
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(base offset, end offset, bytes)"""
    open_transactions: list[tuple[int, int]] = field(default_factory=list)
    pending: list[tuple[int, "asyncio.Future[Appended]", int]] = field(default_factory=list)
    callbacks: Callbacks[()] = field(default_factory=Callbacks[()])
    room: asyncio.Event = field(default_factory=asyncio.Event)
    reads: int = 0
    refused: list[ErrorCode] = field(default_factory=list)
    will_commit: bool = False

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return (producer_id, producer_epoch) in self.open_transactions

    def append(
        self,
        header: RecordBatchHeader,
        data: Buffer,
        *,
        coordinator_epoch: int | None = None,
        may_open: MayOpen = never_opens,
        waits_for_one: bool = False,
    ) -> "asyncio.Future[Appended]":
        if self.refusal is not None:
            raise self.refusal
        if len(data) > BATCH_BYTES_MAX:
            raise TopicError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(data)} B")
        base, end = self.log_end_offset, self.log_end_offset + header.last_offset_delta + 1
        batch = bytearray(data)
        place(batch, base, self.leader_epoch)
        if self.keeps:
            self.batches.append((base, end, bytes(batch)))
        self.log_end_offset = end
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        self.pending.append((base, future, end))
        if self.commits_itself and not self.will_commit:
            self.will_commit = True
            loop.call_soon(self.commit)
        return future

    def note_refused(self, header: RecordBatchHeader, code: ErrorCode) -> None:
        self.refused.append(code)

    def commit(self) -> None:
        self.will_commit = False
        pending, self.pending = self.pending, []
        for base, future, end in pending:
            self.high_watermark = self.last_stable_offset = end
            if not future.done():
                future.set_result(Appended(base, -1, self.log_start_offset))
        self.callbacks.notify()

    def fail_pending(self, error: TopicError) -> None:
        pending, self.pending = self.pending, []
        for _, future, _ in pending:
            future.set_exception(error)

    async def wait_for_room(self, size: int) -> None:
        await self.room.wait()

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, at_least_one: bool
    ) -> LogReadResult:
        self.reads += 1
        end = self.last_stable_offset if read_committed else self.high_watermark
        found: list[bytes | memoryview] = []
        size = 0
        for _, batch_end, data in self.batches:
            if batch_end <= offset or batch_end > end:
                continue
            if size + len(data) > max_bytes and not (at_least_one and not found):
                break
            found.append(data)
            size += len(data)
        return LogReadResult(
            found, self.high_watermark, self.last_stable_offset, self.log_start_offset, []
        )

    def on_progress(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self.callbacks.add(callback)

    async def offset_for_timestamp(self, timestamp_ms: int) -> RecordPosition | None:
        for _, _, data in self.batches:
            for record in parse_records(data, bytes_max=2**20):
                if record.timestamp_ms >= timestamp_ms:
                    return RecordPosition(record.offset, record.timestamp_ms, self.leader_epoch)
        return None

    async def max_timestamp(self) -> RecordPosition | None:
        records = [
            record for _, _, data in self.batches for record in parse_records(data, bytes_max=2**20)
        ]
        if not records:
            return None
        last = max(records, key=lambda each: each.timestamp_ms)
        return RecordPosition(last.offset, last.timestamp_ms, self.leader_epoch)

    def end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        return (epoch, self.high_watermark) if epoch <= self.leader_epoch else (-1, -1)

    async def delete_records(self, before_offset: int) -> int:
        offset = self.high_watermark if before_offset == -1 else before_offset
        if offset > self.high_watermark:
            raise TopicError(ErrorCode.OFFSET_OUT_OF_RANGE, "beyond the high watermark")
        self.log_start_offset = max(self.log_start_offset, offset)
        self.callbacks.notify()
        return self.log_start_offset

    def active_producers(self) -> list[ActiveProducer]:
        return [ActiveProducer(7, 1, 9, 1_000, -1, -1)]


@dataclass(slots=True)
class MemoryTopics:
    """The partitions that a broker leads, and the other brokers and topics that it knows."""

    logs: dict[tuple[str, int], MemoryLog] = field(default_factory=dict)
    ids: dict[bytes, str] = field(default_factory=dict)
    leaders: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    unverified: dict[tuple[str, int], TopicError] = field(default_factory=dict)
    verified: list[tuple[str, int]] = field(default_factory=list)
    overtaken: list[tuple[str, int]] = field(default_factory=list)
    guards: VerificationGuards = field(default_factory=VerificationGuards)
    may_verify: asyncio.Event = field(default_factory=asyncio.Event)
    openings: dict[tuple[str, int], asyncio.Event] = field(default_factory=dict)

    def log_of(self, topic: str, partition: int) -> MemoryLog:
        log = self.logs.get((topic, partition))
        if log is not None:
            return log
        if (topic, partition) in self.leaders:
            raise TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads it")
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")

    def opening(self, topic: str, partition: int) -> asyncio.Event | None:
        return self.openings.get((topic, partition))

    def topic_name_of(self, topic_id: bytes) -> str | None:
        return self.ids.get(topic_id)

    def leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        return self.leaders.get((topic, partition))

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        return f"{listener.lower()}-{broker_id}", 9092

    def rack_of(self, broker_id: int) -> str | None:
        return f"rack-{broker_id}"

    async def verify(
        self, claim: Claim, partition: TopicPartition, *, knows_abortable: bool = False
    ) -> Confirmation:
        await self.may_verify.wait()
        self.verified.append(partition)
        refusal = self.unverified.get(partition)
        if refusal is not None:
            raise refusal
        self.logs[partition].open_transactions.append((claim.producer_id, claim.epoch))
        confirmation = self.guards.begin(partition, claim.producer_id)
        if partition in self.overtaken:
            confirmation.void()
        return confirmation

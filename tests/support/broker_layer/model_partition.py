"""A partition's log without ledgers: appended batches take effect once they are committed."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import ControlKind, RecordBatchHeader, read_control
from broker_layer.transactions.values import TopicPartition

Tag = tuple[str, int, int]


@dataclass(frozen=True)
class Entry:
    """A batch of a transaction if it has a tag, else a marker."""

    producer_id: int
    producer_epoch: int
    tag: Tag | None = None
    committed: bool = False
    coordinator_epoch: int = -1


@dataclass
class ProducerView:
    """A leader's state of one producer."""

    epoch: int = -1
    coordinator_epoch: int = -1
    is_open: bool = False


class ModelPartition:
    """One partition with any leader."""

    def __init__(self, name: TopicPartition, leader: int, rng: Random, delay_max_s: float) -> None:
        self.name = name
        self.leader = leader
        self.rng = rng
        self.delay_max_s = delay_max_s
        self.entries: list[Entry] = []
        self.committed = 0
        self.log = ModelLog(self)

    def move(self, leader: int) -> None:
        """Move leadership to another broker; uncommitted batches may be lost."""
        self.log.fail()
        del self.entries[self.rng.randint(self.committed, len(self.entries)) :]
        self.committed = len(self.entries)
        self.leader = leader
        self.log = ModelLog(self)


@dataclass
class ModelLog:
    """The partition's log as opened by one leader."""

    partition: ModelPartition
    has_failed: bool = False
    producers: dict[int, ProducerView] = field(default_factory=dict)
    waiting: "dict[int, asyncio.Future[object]]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.partition.entries:
            self._apply(entry)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        known = self.producers.get(producer_id)
        return known is not None and known.is_open and known.epoch == epoch

    def append_batch(self, producer_id: int, epoch: int, tag: Tag) -> "asyncio.Future[object]":
        known = self.producers.get(producer_id, ProducerView())
        if epoch < known.epoch:
            raise TopicError(ErrorCode.INVALID_PRODUCER_EPOCH, "an old producer")
        return self._append(Entry(producer_id, epoch, tag))

    def append(
        self, header: RecordBatchHeader, data: bytearray, *, coordinator_epoch: int | None
    ) -> "asyncio.Future[object]":
        kind, epoch = read_control(data)
        assert epoch == coordinator_epoch
        known = self.producers.get(header.producer_id, ProducerView())
        if epoch < known.coordinator_epoch:
            raise TopicError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "an old coordinator")
        if header.producer_epoch < known.epoch:
            raise TopicError(ErrorCode.INVALID_PRODUCER_EPOCH, "an old producer")
        committed = kind is ControlKind.COMMIT
        producer = header.producer_id, header.producer_epoch
        return self._append(Entry(*producer, committed=committed, coordinator_epoch=epoch))

    def fail(self) -> None:
        self.has_failed = True
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
                answer.exception()
        self.waiting.clear()

    def _append(self, entry: Entry) -> "asyncio.Future[object]":
        if self.has_failed:
            raise TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
        self.partition.entries.append(entry)
        self._apply(entry)
        count = len(self.partition.entries)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()
        self.waiting[count] = answer
        delay_s = self.partition.rng.random() * self.partition.delay_max_s
        loop.call_later(delay_s, self._commit, count)
        return answer

    def _commit(self, count: int) -> None:
        if self.has_failed:
            return
        self.partition.committed = max(self.partition.committed, count)
        for number in [number for number in self.waiting if number <= count]:
            answer = self.waiting.pop(number)
            if not answer.done():
                answer.set_result(None)

    def _apply(self, entry: Entry) -> None:
        known = self.producers.setdefault(entry.producer_id, ProducerView())
        known.epoch = max(known.epoch, entry.producer_epoch)
        known.coordinator_epoch = max(known.coordinator_epoch, entry.coordinator_epoch)
        known.is_open = entry.tag is not None

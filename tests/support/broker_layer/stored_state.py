"""A state partition's log without ledgers: durable records survive its holder."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode


class StoredState:
    """The records of one state partition; at most one holder can append to them."""

    def __init__(self, rng: Random, delay_max_s: float = 0.0) -> None:
        self.records: list[bytes] = []
        self.epoch = 0
        self.holder: HeldLog | None = None
        self.rng = rng
        self.delay_max_s = delay_max_s

    def delay_s(self) -> float:
        return self.rng.random() * self.delay_max_s

    def opener(self) -> "Opener":
        self.epoch += 1
        return Opener(self, self.epoch)


class Opener:
    """Takes the partition over in one epoch."""

    def __init__(self, stored: StoredState, epoch: int) -> None:
        self.stored = stored
        self.epoch = epoch

    async def __call__(
        self,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> "HeldLog":
        stored = self.stored
        if stored.holder is not None:
            stored.holder.fence()
        await asyncio.sleep(stored.delay_s())
        if self.epoch != stored.epoch:
            raise TopicError(ErrorCode.NOT_COORDINATOR, "another one is faster")
        for record in stored.records:
            load(record)
        if stored.rng.random() < 0.5:
            stored.records = list(snapshot())
        stored.holder = HeldLog(stored, self.epoch, on_failed)
        return stored.holder


class HeldLog:
    """The log as opened by one holder."""

    def __init__(self, stored: StoredState, epoch: int, on_failed: Callable[[], None]) -> None:
        self.leader_epoch = epoch
        self.lead_refusal: TopicError | None = None
        self.is_held_up = False
        self.is_full = False
        self._stored = stored
        self._on_failed = on_failed
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._is_ended = False

    async def confirm_lead(self) -> None:
        if self._is_ended:
            raise TopicError(ErrorCode.NOT_COORDINATOR, "the log is another's")

    def append(self, record: bytes) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        if self._is_ended:
            raise TopicError(ErrorCode.NOT_COORDINATOR, "the log is another's")
        if self.is_full:
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too much waits")
        self._waiting.append((record, answer))
        loop.call_later(self._stored.delay_s(), self.release_one)
        return answer

    def release_one(self) -> None:
        if self._waiting and not self.is_held_up:
            record, answer = self._waiting.popleft()
            self._stored.records.append(record)
            if not answer.done():
                answer.set_result(None)

    def release_all(self) -> None:
        self.is_held_up = False
        while self._waiting:
            self.release_one()

    def fence(self) -> None:
        """Fence the holder: some waiting records become durable, but their futures fail."""
        if self._is_ended:
            return
        self._is_ended = True
        kept = self._stored.rng.randint(0, len(self._waiting))
        for number, (record, answer) in enumerate(self._waiting):
            if number < kept:
                self._stored.records.append(record)
            if not answer.done():
                answer.set_exception(TopicError(ErrorCode.NOT_COORDINATOR, "fenced"))
                answer.exception()
        self._waiting.clear()
        asyncio.get_running_loop().call_later(self._stored.delay_s() * 5, self._on_failed)

    async def aclose(self) -> None:
        if not self._is_ended:
            self.release_all()
            self._is_ended = True

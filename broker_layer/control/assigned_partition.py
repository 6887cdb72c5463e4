"""Takeover, service and closing of one partition, as the cluster's record demands.

Leaves opening a topic's log or a coordinator's state to `partition_opener`, and the supply of new
epochs to `partition_manager`.

Invariants: at most one log or state is open at a time, and it is closed before the next is opened.
An epoch whose log failed, or that was claimed before, is never tried again: a new one is requested.
While the partition is not served, `status` states since when, and the reason.

Source: topics design, "What a takeover does".
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final, Protocol

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from ledger_client import LedgerError
from metadata.backoff import Backoff
from metadata.errors import MetadataError
from metadata.topics.partition_store import PartitionKey
from quire.server.server_log import ServerLog, loop_time

ATTEMPT_PAUSE_FIRST_S: Final = 0.1
OFFLINE_AFTER_S: Final = 5.0
"""Time of failed takeover attempts, in seconds, after which clients see no leader."""
SERVED_WELL_S: Final = 10.0
"""A log that fails within this time, in seconds, is reopened after a pause, longer each time."""
_log = logging.getLogger("quire.broker.partitions")
_events = ServerLog(loop_time)


class OpenedPartition(Protocol):
    """An object that serves a partition after its takeover."""

    async def aclose(self) -> None:
        """Close it in order; also after it failed."""


OpenPartition = Callable[[int, Callable[[str], None]], Awaitable[OpenedPartition]]
"""Opens a partition. Arguments: a leader epoch, and a callback. The opened object calls the
callback once, with the reason, when it has failed."""


class Stage(StrEnum):
    """Progress of a partition that the record assigns to this broker."""

    LEADS = "leads"
    TAKES_OVER = "takes over"
    WAITS = "waits"
    """An attempt failed, or a new epoch is needed: `reason` states which."""
    NOT_LED = "not led"


TRIES: Final = (Stage.TAKES_OVER, Stage.WAITS)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """State of a partition in this broker; `reason` is for operators."""

    stage: Stage
    epoch: int
    since_s: float
    """The loop's time at which the broker began to lead, began to try, or gave the partition up."""
    reason: str = ""

    def is_offline(self, now_s: float) -> bool:
        """Return whether attempts to take the partition over have failed for OFFLINE_AFTER_S."""
        return self.stage in TRIES and bool(self.reason) and now_s - self.since_s >= OFFLINE_AFTER_S


class TakeOverSlots:
    """`count` slots, each held by one takeover for at most `held_s_max` seconds.

    A takeover is quick while bookies answer. One that waits for a bookie that does not answer
    delays others only for a limited time: then it continues without its slot.
    """

    def __init__(self, count: int, held_s_max: float) -> None:
        self._free = asyncio.Semaphore(count)
        self._held_s_max = held_s_max

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a slot; hold it until the end of the block, but not longer than `held_s_max`."""
        await self._free.acquire()
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._held_s_max, release)
        try:
            yield
        finally:
            timer.cancel()
            release()


@dataclass(frozen=True, slots=True)
class TakeOverLimits:
    """Limits that the takeovers of a broker's partitions share."""

    slots: TakeOverSlots
    pause_max_s: float
    rng: Random


class AssignedPartition:
    """One partition that the record assigns, or assigned, to this broker. Used by
    `PartitionManager`.
    """

    def __init__(
        self,
        topic: str,
        key: PartitionKey,
        open_partition: OpenPartition,
        limits: TakeOverLimits,
        on_epoch_needed: Callable[["AssignedPartition"], None],
        on_served: Callable[["AssignedPartition"], None],
    ) -> None:
        """`on_served` is called when `serving` is set: what opened it may be old by now."""
        self.topic = topic
        self.key = key
        self.serving: OpenedPartition | None = None
        """The opened log or state; None if there is none or it has failed."""
        self.opening: asyncio.Event | None = None
        """Set at the end of the attempt that runs or is about to start. None if there is none, also
        while the partition waits after a failure."""
        self.wanted: int | None = None
        """The epoch in which this broker is to lead; None if it is not to lead."""
        self.spent = -1
        """The last epoch that cannot be used again."""
        self._open = open_partition
        self._limits = limits
        self._on_epoch_needed = on_epoch_needed
        self._on_served = on_served
        self._backoff = Backoff(limits.rng, ATTEMPT_PAUSE_FIRST_S, limits.pause_max_s)
        self._opened: OpenedPartition | None = None
        self._opened_epoch = -1
        self._attempt: asyncio.Task[OpenedPartition] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed_soon = False
        self._kicked = asyncio.Event()
        self.status = PartitionStatus(Stage.NOT_LED, -1, self._now())
        self.leaderless_since_s = self._now()

    def want(self, epoch: int | None) -> None:
        """Set the epoch in which this broker is to lead; ignore epochs older than the known one."""
        if epoch == self.wanted or (
            epoch is not None and self.wanted is not None and epoch < self.wanted
        ):
            return
        self.wanted = epoch
        if epoch is not None:
            self._begin_opening()
        self._kick()

    def fail(self, reason: str) -> None:
        """Treat the log or state that is opened, or being opened, as failed; another epoch then
        takes the partition over.
        """
        if self._opened is not None:
            self._failed(self._opened_epoch, reason)
        elif self._attempt is not None:
            self.spent = max(self.spent, self.status.epoch)
            self._note(Stage.WAITS, self.status.epoch, reason)
            self._attempt.cancel()

    async def finished(self) -> None:
        """Return once the last `want` has been carried out, or waits for a new epoch."""
        while self._task is not None and not self._task.done():
            await asyncio.gather(self._task, return_exceptions=True)

    def _kick(self) -> None:
        self._kicked.set()
        if self._attempt is not None:
            self._attempt.cancel()  # its epoch is not wanted any more
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            self._kicked.clear()
            wanted = self.wanted
            if self._opened is not None and (
                self._opened_epoch != wanted or self._opened_epoch <= self.spent
            ):
                await self._close()
            elif wanted is None or self._opened is not None:
                self._end_opening()
                return
            elif wanted <= self.spent:
                if self._failed_soon:
                    self._failed_soon = False
                    await self._pause()
                    continue
                self._on_epoch_needed(self)
                return
            else:
                await self._take_over(wanted)

    async def _take_over(self, epoch: int) -> None:
        """Make one attempt; after a failure, pause until the next attempt is due."""
        async with self._limits.slots.taken():
            if self.wanted != epoch:
                return
            self._note(Stage.TAKES_OVER, epoch, self.status.reason)
            loop = asyncio.get_running_loop()
            self._attempt = loop.create_task(self._awaited(epoch))
            results = await asyncio.gather(self._attempt, return_exceptions=True)
            self._attempt = None
        match results[0]:
            case asyncio.CancelledError():
                return
            case TopicError(code=ErrorCode.FENCED_LEADER_EPOCH) as error:
                # An earlier failed attempt may have claimed it: then its reason is the one to show.
                self._note(Stage.WAITS, epoch, self.status.reason or str(error))
                self.spent = max(self.spent, epoch)
            case TopicError() | LedgerError() | MetadataError() as error:
                self._note_failure(epoch, error)
                await self._pause()
            case BaseException() as error:
                _log.error(
                    "taking over %s-%s failed", self.topic, self.key.partition, exc_info=error
                )
                self._note_failure(epoch, error)
                await self._pause()
            case opened:
                self._opened, self._opened_epoch = opened, epoch
                if epoch > self.spent:
                    self.serving = opened
                    self._on_served(self)
                    self._note(Stage.LEADS, epoch, "")
                    partition = f"{self.topic}-{self.key.partition}"
                    _events.info("partition led", partition=partition, epoch=epoch)

    async def _awaited(self, epoch: int) -> OpenedPartition:
        return await self._open(epoch, lambda reason: self._failed(epoch, reason))

    def _note_failure(self, epoch: int, error: BaseException) -> None:
        reason = str(error) or type(error).__name__
        if reason != self.status.reason:
            _log.warning("%s-%s has no leader: %s", self.topic, self.key.partition, reason)
        self._note(Stage.WAITS, epoch, reason)

    async def _pause(self) -> None:
        """Wait until the next attempt is due, or until `want` or `fail` changes the goal."""
        try:
            async with asyncio.timeout(self._backoff.next_s()):
                await self._kicked.wait()
        except TimeoutError:
            pass

    def _failed(self, epoch: int, reason: str) -> None:
        """Record that the object opened in an epoch has failed. One that is being closed ends too
        if another leader was first, or its topic was deleted: then nothing is missing.
        """
        self.spent = max(self.spent, epoch)
        if self._opened_epoch == epoch and self._opened is not None:
            self.serving = None
            self._failed_soon = self._now() - self.leaderless_since_s < SERVED_WELL_S
            if not self._failed_soon:
                self._backoff.count = 0
            _log.warning("the log of %s-%s failed: %s", self.topic, self.key.partition, reason)
            self._note(Stage.WAITS, epoch, reason)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def _close(self) -> None:
        opened, self._opened, self.serving = self._opened, None, None
        assert opened is not None
        if self.wanted is None:
            self._note(Stage.NOT_LED, self._opened_epoch, "")
            _events.info("partition left", partition=f"{self.topic}-{self.key.partition}")
        try:
            await opened.aclose()
        except (TopicError, LedgerError, MetadataError) as error:
            _log.info("%s-%s was not closed in order: %s", self.topic, self.key.partition, error)
        except Exception:  # noqa: BLE001 - else the partition could not be taken over again
            _log.exception("closing %s-%s failed", self.topic, self.key.partition)

    def _note(self, stage: Stage, epoch: int, reason: str) -> None:
        if stage is Stage.LEADS or self.status.stage is Stage.LEADS:
            self.leaderless_since_s = self._now()
        old = self.status
        is_same = stage is old.stage or (stage in TRIES and old.stage in TRIES)
        since_s = old.since_s if is_same else self._now()
        self.status = PartitionStatus(stage, epoch, since_s, reason)
        if stage is Stage.TAKES_OVER:
            self._begin_opening()
        else:
            self._end_opening()

    def _begin_opening(self) -> None:
        if self.opening is None:
            self.opening = asyncio.Event()

    def _end_opening(self) -> None:
        event, self.opening = self.opening, None
        if event is not None:
            event.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

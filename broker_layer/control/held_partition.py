"""Takes one partition over, holds it, and gives it up, as the cluster's record says.

Leaves what is held (a topic's log, a coordinator's state) to whoever opens it, and which epochs
there are to `partition_manager.py`.

Invariants: at most one thing is held at a time, and what was held is closed before the next is
opened; an epoch whose log failed, or that was claimed before, is never tried again: a new one is
asked for; while nothing is held, `status` says why and since when.

Source: topics design, "What a takeover does".
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final, Protocol

from broker_layer.control.opening_partitions import OpeningPartitions
from broker_layer.control.takeover_slots import TakeOverSlots
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from ledger_client import LedgerError
from metadata.backoff import Pauses
from metadata.errors import MetadataError
from metadata.topics.partition_store import PartitionKey

ATTEMPT_PAUSE_FIRST_S: Final = 0.1
OFFLINE_AFTER_S: Final = 5.0
"""A partition that could not be taken over for so long has no leader, as far as clients see."""
SERVED_WELL_S: Final = 10.0
"""A log that fails sooner than this is opened anew after a pause, a longer one each time."""

_log = logging.getLogger("quire.broker.partitions")


class Held(Protocol):
    """What a broker holds of a partition that it took over."""

    async def aclose(self) -> None:
        """Give it up in order; also after it failed."""
        ...


OpenHeld = Callable[[int, Callable[[str], None]], Awaitable[Held]]
"""Takes a leader epoch and what is to be told, once, when it can go on no more, and why."""


class Stage(StrEnum):
    """How far a partition is that this broker is to lead."""

    LEADS = "leads"
    TAKES_OVER = "takes over"
    WAITS = "waits"
    """An attempt failed, or a new epoch is needed: `reason` says why."""
    GIVEN_UP = "given up"


TRIES: Final = (Stage.TAKES_OVER, Stage.WAITS)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """What this broker says of a partition; `reason` is for people."""

    stage: Stage
    epoch: int
    since_s: float
    """The loop's time since when it leads, or tries to, or has given up."""
    reason: str = ""

    def is_offline(self, now_s: float) -> bool:
        """Tell whether it was tried in vain for a while to take the partition over."""
        return self.stage in TRIES and bool(self.reason) and now_s - self.since_s >= OFFLINE_AFTER_S


@dataclass(frozen=True, slots=True)
class TakeOverLimits:
    """What all partitions of a broker share when they are taken over."""

    slots: TakeOverSlots
    pause_max_s: float
    rng: Random
    opening: OpeningPartitions


class HeldPartition:
    """One partition that this broker is, or was, to lead. Belongs to `PartitionManager`."""

    def __init__(
        self,
        topic: str,
        key: PartitionKey,
        open_held: OpenHeld,
        limits: TakeOverLimits,
        on_epoch_needed: Callable[["HeldPartition"], None],
    ) -> None:
        self.topic = topic
        self.key = key
        self.held: Held | None = None
        """What is held and has not failed."""
        self.wanted: int | None = None
        """The epoch in which this broker is to lead; None: it is not."""
        self.spent = -1
        """The last epoch that can be used no more."""
        self._open = open_held
        self._limits = limits
        self._on_epoch_needed = on_epoch_needed
        self._pauses = Pauses(limits.rng, ATTEMPT_PAUSE_FIRST_S, limits.pause_max_s)
        self._opened: Held | None = None
        self._opened_epoch = -1
        self._attempt: asyncio.Task[Held] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed_soon = False
        self._kicked = asyncio.Event()
        self.status = PartitionStatus(Stage.GIVEN_UP, -1, self._now())
        self.leaderless_since_s = self._now()

    def want(self, epoch: int | None) -> None:
        """Say in which epoch this broker leads; older epochs than known change nothing."""
        if epoch == self.wanted or (
            epoch is not None and self.wanted is not None and epoch < self.wanted
        ):
            return
        self.wanted = epoch
        if epoch is not None:
            self._limits.opening.begin(self.topic, self.key.partition)
        self._kick()

    def fail(self, reason: str) -> None:
        """Give up what is held, as if it had failed; it is taken over anew in another epoch."""
        if self._opened is not None:
            self._failed(self._opened_epoch, reason)

    async def finished(self) -> None:
        """Return once what was wanted last is done, or waits for a new epoch."""
        while self._task is not None and not self._task.done():
            await asyncio.gather(self._task, return_exceptions=True)

    def _kick(self) -> None:
        self._kicked.set()
        if self._attempt is not None:
            self._attempt.cancel()  # of an epoch that is not wanted any more
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            self._kicked.clear()
            wanted = self.wanted
            if self._opened is not None and (
                self._opened_epoch != wanted or self._opened_epoch <= self.spent
            ):
                await self._give_up()
            elif wanted is None or self._opened is not None:
                self._limits.opening.end(self.topic, self.key.partition)
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
        """Try once; after a failure, pause until the next attempt is due."""
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
                # An attempt that failed may have claimed it: then people want to know why that did.
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
            case held:
                self._opened, self._opened_epoch = held, epoch
                if epoch > self.spent:
                    self._serve(held, epoch)

    async def _awaited(self, epoch: int) -> Held:
        return await self._open(epoch, lambda reason: self._failed(epoch, reason))

    def _note_failure(self, epoch: int, error: BaseException) -> None:
        reason = str(error) or type(error).__name__
        if reason != self.status.reason:
            _log.warning("%s-%s has no leader: %s", self.topic, self.key.partition, reason)
        self._note(Stage.WAITS, epoch, reason)

    async def _pause(self) -> None:
        """Wait until the next attempt is due, or something else is wanted."""
        try:
            async with asyncio.timeout(self._pauses.next_s()):
                await self._kicked.wait()
        except TimeoutError:
            pass

    def _serve(self, held: Held, epoch: int) -> None:
        self.held = held
        self._note(Stage.LEADS, epoch, "")

    def _failed(self, epoch: int, reason: str) -> None:
        """Take note that what was opened in an epoch goes on no more."""
        self.spent = max(self.spent, epoch)
        if self._opened_epoch == epoch:
            self.held = None
            self._failed_soon = self._now() - self.leaderless_since_s < SERVED_WELL_S
            if not self._failed_soon:
                self._pauses.count = 0
            _log.warning("%s-%s lost its log: %s", self.topic, self.key.partition, reason)
            self._note(Stage.WAITS, epoch, reason)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def _give_up(self) -> None:
        opened, self._opened, self.held = self._opened, None, None
        assert opened is not None
        if self.wanted is None:
            self._note(Stage.GIVEN_UP, self._opened_epoch, "")
        try:
            await opened.aclose()
        except (TopicError, LedgerError, MetadataError) as error:
            _log.info("%s-%s was not closed in order: %s", self.topic, self.key.partition, error)
        except Exception:  # noqa: BLE001 - else nobody would ever take the partition over again
            _log.exception("giving up %s-%s failed", self.topic, self.key.partition)

    def _note(self, stage: Stage, epoch: int, reason: str) -> None:
        if stage is Stage.LEADS or self.status.stage is Stage.LEADS:
            self.leaderless_since_s = self._now()
        old = self.status
        is_same = stage is old.stage or (stage in TRIES and old.stage in TRIES)
        since_s = old.since_s if is_same else self._now()
        self.status = PartitionStatus(stage, epoch, since_s, reason)
        opening = self._limits.opening
        if stage is Stage.TAKES_OVER:
            opening.begin(self.topic, self.key.partition)
        else:
            opening.end(self.topic, self.key.partition)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

"""Ledgers that one log writes: begins them, rolls to the next one, and applies retention.

Leaves the list of ledgers to `ledger_list`, and their contents to `log_appender`.

The first ledger is created at the first append. The next one is created when ROLL_EARLY_SHARE of
the current one is written. Batches go to the next ledger from the moment the old one is full. They
count once the old ledger is closed and one change of the list has ended it and added the new one.
While no next ledger can be created, the old one grows by at most `growth_bytes_max`; then appends
are refused.

Invariants: at most one ledger drains; a ledger's first entry is a state entry; the log's start
moves before a ledger is deleted.

Source: topics design, "What a takeover does" (rolling); protocol rule 6.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.appending.log_retention import is_aged, retained_from
from broker_layer.log.appending.pending_batches import OpenLedger
from broker_layer.log.ledger_closing import change_until_stored, close_ledger
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.next_ledger import NextLedger
from broker_layer.log.settings.log_config import LogConfig
from broker_layer.log.state.partition_state import PartitionState
from ledger_client.errors import LedgerError, NotEnoughBookiesError
from ledger_client.info import LedgerInfo
from metadata.errors import MetadataError, StoreClosedError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.topics.partition import PartitionSegment

ROLL_EARLY_SHARE: Final = 0.9
PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Idle time after which a producer's state is dropped; the default of Kafka's
producer.id.expiration.ms."""

Work = Callable[[], Coroutine[None, None, None]]

log = logging.getLogger(__name__)


class RolledLog(Protocol):
    """The log that writes these ledgers."""

    config: LogConfig
    failure: TopicError | None

    @property
    def state(self) -> PartitionState:
        """Producers, transactions, epochs and index of the log."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        ...

    def append_state(self, ledger: OpenLedger) -> None:
        """Append a state entry."""
        ...

    def admit_deferred(self) -> None:
        """Admit batches that waited for a ledger."""
        ...

    def refuse_deferred(self, error: TopicError) -> None:
        """Refuse batches that waited for a ledger."""
        ...

    def commit(self) -> None:
        """Commit the batches that count now."""
        ...

    def note_progress(self, ledger: OpenLedger, error: LedgerError | None) -> None:
        """Process newly confirmed entries of a ledger, or its failure."""
        ...

    def fail(self, text: str) -> TopicError:
        """End the log."""
        ...

    def report_progress(self) -> None:
        """Report that the log's start moved."""
        ...


class LedgerRoller:
    """The ledgers that one log writes."""

    def __init__(self, owner: RolledLog, ledger_list: LedgerList, last: LedgerInfo | None) -> None:
        self._appender = owner
        self._ledger_list = ledger_list
        self._last = last
        self.ledger: OpenLedger | None = None
        """The ledger that new batches go to."""
        self._draining: OpenLedger | None = None
        self._next = NextLedger(ledger_list)
        self._is_requested = False
        self._opened_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def replicas(self) -> tuple[BookieId, ...]:
        """The bookies of the newest ledger."""
        if self.ledger is not None:
            return self.ledger.writer.members
        return () if self._last is None else self._last.fragments[-1].ensemble

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """The replicas known to store every committed entry."""
        if self.ledger is not None and self.ledger.writer.quorum.is_in_sync:
            return self.ledger.writer.in_sync
        return self.replicas

    @property
    def written_bytes(self) -> int:
        """Bytes of the ledgers whose end is not listed yet."""
        return sum(each.written_bytes for each in (self.ledger, self._draining) if each is not None)

    def _measured(self, segment: PartitionSegment) -> PartitionSegment:
        """Return a segment of the list, with the written bytes if its ledger is open."""
        return replace(segment, bytes=self.written_bytes) if segment.is_open else segment

    def confirmed_of(self, ledger_id: LedgerId) -> EntryId | None:
        """Return the last confirmed entry of a ledger that is being written; else None."""
        for ledger in (self.ledger, self._draining):
            if ledger is not None and ledger.writer.id == ledger_id:
                return ledger.writer.last_confirmed
        return None

    # -- beginning ledgers -----------------------------------------------------------------------

    def want_ledger(self) -> None:
        """Begin the first ledger, unless it is being begun."""
        if self.ledger is None:
            self._run(self._begin_first)

    def request_roll(self) -> None:
        """Request that the log rolls to another ledger soon."""
        self._is_requested = self.ledger is not None

    def require_room(self) -> None:
        """Raise TopicError KAFKA_STORAGE_ERROR, which clients retry, if the ledger is too large.

        Its limit is the segment size plus `growth_bytes_max`. A roll is tried first.
        """
        ledger = self.ledger
        if ledger is None or self._appender.failure is not None or not self._is_overgrown(ledger):
            return
        self.roll_if_due()
        if self.ledger is ledger:
            text = f"ledger {ledger.writer.id} has {ledger.written_bytes} B, which is its limit"
            raise TopicError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{text}, and no next ledger can be created now"
            )

    def _is_overgrown(self, ledger: OpenLedger) -> bool:
        bytes_max = (
            self._appender.config.segment_bytes + self._ledger_list.services.growth_bytes_max
        )
        return ledger.written_bytes >= bytes_max

    def roll_if_due(self) -> None:
        """Create the next ledger, or roll to it, if it is due."""
        ledger, config = self.ledger, self._appender.config
        if ledger is None or not ledger.record_bytes:
            return
        share = ledger.written_bytes / config.segment_bytes
        if share < ROLL_EARLY_SHARE and not self._is_requested and not self._is_old():
            return
        if not self._next.is_ready(config.quorum):
            self._run(partial(self._next.create, config.quorum))
        elif share >= 1 or self._is_requested or self._is_old():
            self._roll(ledger)

    def _is_old(self) -> bool:
        now = asyncio.get_running_loop().time()
        return now - self._opened_s >= self._appender.config.segment_ms / 1000

    def _run(self, work: Work) -> None:
        if self._task is None and self._appender.failure is None:
            self._task = asyncio.get_running_loop().create_task(self._guarded(work))

    async def _guarded(self, work: Work) -> None:
        try:
            await work()
        except TopicError as error:
            self._appender.fail(error.text)
        except StoreClosedError as error:
            self._appender.fail(str(error))
        except Exception as error:  # callers that wait for the ledger must receive the failure
            log.exception("a ledger cannot be begun or ended")
            self._appender.fail(f"{type(error).__name__}: {error}")
        finally:
            self._task = None

    async def _begin_first(self) -> None:
        try:
            writer = await self._ledger_list.create_writer(self._appender.config.quorum)
        except NotEnoughBookiesError as error:
            self._appender.refuse_deferred(TopicError(ErrorCode.NOT_ENOUGH_REPLICAS, str(error)))
            return
        except (LedgerError, MetadataError) as error:
            text = f"no ledger can be created now: {error}"
            self._appender.refuse_deferred(TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text))
            return
        segment = self._ledger_list.new_segment(writer.id, self._appender.log_end_offset)
        try:
            await self._ledger_list.change(lambda record: record.with_segment(segment))
        except MetadataError as error:
            await self._ledger_list.abandon(writer)
            text = f"the new ledger cannot be listed now: {error}"
            self._appender.refuse_deferred(TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text))
            return
        except (TopicError, asyncio.CancelledError):
            # The ledger may be listed, and the next leader would find it: it must not be deleted.
            self._ledger_list.end_later(writer, is_listed=True)
            raise
        self._begin(OpenLedger(writer, segment, is_listed=True))
        self._appender.admit_deferred()

    def _begin(self, ledger: OpenLedger) -> None:
        self.ledger = ledger
        self._is_requested = False
        loop = asyncio.get_running_loop()
        jitter_ms = self._ledger_list.services.rng.uniform(
            0, self._appender.config.segment_jitter_ms
        )
        self._opened_s = loop.time() - jitter_ms / 1000
        self._appender.state.begin_ledger(ledger.writer.id)
        ledger.writer.follow(partial(self._appender.note_progress, ledger))
        self._appender.append_state(ledger)

    # -- rolling ---------------------------------------------------------------------------------

    def _roll(self, old: OpenLedger) -> None:
        if self._task is not None or (writer := self._next.take()) is None:
            return
        self._draining = old
        segment = self._ledger_list.new_segment(writer.id, self._appender.log_end_offset)
        new = OpenLedger(writer, segment, is_listed=False)
        self._begin(new)

        async def finish() -> None:
            await self._finish(old, new)

        self._run(finish)

    async def _finish(self, old: OpenLedger, new: OpenLedger) -> None:
        """Close the old ledger; then list its end and the new ledger in one change."""
        info = await self._closed(old)
        await self._until_stored(old, info, new)
        new.is_listed = True
        self._draining = None
        self._appender.commit()

    async def _closed(self, ledger: OpenLedger, wait_s: float | None = None) -> LedgerInfo:
        """Close a ledger with every entry written to it. Raises TopicError if that fails."""
        try:
            return await close_ledger(self._ledger_list.services.client, ledger.writer, wait_s)
        except TopicError as error:
            raise self._appender.fail(error.text) from error

    async def _until_stored(
        self, old: OpenLedger, info: LedgerInfo, new: OpenLedger | None
    ) -> None:
        ended = (
            old.writer.id,
            self._appender.log_end_offset if new is None else new.segment.base_offset,
            info.length or 0,
            old.max_timestamp_ms,
        )
        await change_until_stored(
            self._ledger_list,
            lambda record: (
                record.with_segment_ended(*ended)
                if new is None
                else record.with_segment_ended(*ended).with_segment(new.segment)
            ),
        )

    # -- trimming --------------------------------------------------------------------------------

    async def begin_at(self, offset: int) -> None:
        """Move the log's start up to an offset; this completes even if the caller is cancelled.

        State below the offset is dropped. Raises TopicError if the log ends, MetadataError.
        """
        if offset > self._ledger_list.record.log_start_offset:
            await self._ledger_list.run_to_end(self._begin_at(offset))

    async def _begin_at(self, offset: int) -> None:
        try:
            await self._ledger_list.change(lambda record: record.with_log_start(offset))
        except TopicError as error:
            raise self._appender.fail(error.text) from error
        self._appender.state.drop_below(offset)
        self._appender.report_progress()

    async def enforce_retention(self, now_ms: int) -> int:
        """Delete ledgers beyond the retention limits; return how many were deleted."""
        config, ledger = self._appender.config, self.ledger
        self._appender.state.expire_producers(now_ms, PRODUCER_EXPIRATION_MS)
        if ledger is not None and ledger.record_bytes:
            is_short = ledger.writer.quorum.ensemble_size < config.quorum.ensemble
            if is_short or is_aged(ledger.segment, ledger.max_timestamp_ms, config, now_ms):
                self._is_requested = True
            self.roll_if_due()
        segments = [self._measured(each) for each in await self._ledger_list.segments()]
        start = self._ledger_list.record.log_start_offset
        await self.begin_at(retained_from(segments, config, start, now_ms))
        try:
            return await self._ledger_list.drop_below(self._ledger_list.record.log_start_offset)
        except TopicError as error:
            raise self._appender.fail(error.text) from error

    # -- ending ----------------------------------------------------------------------------------

    async def end(self, wait_s: float) -> None:
        """Close the open ledger and list its end; wait up to `wait_s` for unconfirmed entries."""
        while self._task is not None:
            await asyncio.shield(asyncio.gather(self._task, return_exceptions=True))
        if self._appender.failure is not None:  # the open ledger may not be listed
            raise self._appender.failure
        ledger = self.ledger
        if ledger is not None:
            info = await self._closed(ledger, wait_s)
            self._appender.commit()
            await self._until_stored(ledger, info, None)
            self.ledger = None
            self._last = info

    def abandon(self) -> None:
        """Stop at once; the next leader recovers the open ledger."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._next.abandon()
        if self.ledger is not None:
            self._ledger_list.end_later(self.ledger.writer, is_listed=True)

    async def aclose(self) -> None:
        """Wait until every task has ended."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._ledger_list.aclose()

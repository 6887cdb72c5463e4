"""The log of one partition at its leader: `TopicLog`.

Leaves the list of ledgers to `ledger_list`, appending to `log_appender`, rolling to
`ledger_roller`, reading to `log_reader`, and takeover to `log_takeover`.

Invariant: after a failure every call is refused, and the partition must be taken over under a new
epoch; a failure of a ledger's writer ends the log.

Source: topics design, "The mapping" and "What a takeover does"; KIP-98, KIP-101; Kafka's
retention.ms and retention.bytes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import NO_TIMESTAMP, RecordBatchHeader, read_header
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.log_appender import LogAppender
from broker_layer.log.log_reader import LogReader, RecordPosition
from broker_layer.log.log_services import DRAIN_S, LogServices
from broker_layer.log.log_takeover import TakenOver, rebuild
from broker_layer.log.pending_batches import Appended, MayOpen, never_opens
from broker_layer.log.read_ahead import Batch
from broker_layer.log.state.partition_state import ActiveProducer
from broker_layer.log.topic_configs import LogConfig
from ledger_client.info import LedgerInfo
from metadata.errors import MetadataError
from metadata.ids import BookieId, LedgerId
from metadata.topics.partition import PartitionSegment
from metadata.topics.partition_store import PartitionKey

PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Idle time after which a producer's state is dropped; the default of Kafka's
producer.id.expiration.ms."""

FUTURE_MS: Final = 3_600_000
"""Time ahead of the broker's clock from which a record's time is reported as holding up retention;
the default of Kafka's message.timestamp.after.max.ms."""

Callback = Callable[[], None]

_log = logging.getLogger(__name__)


class FutureRecords(NamedTuple):
    """Records with times in the future, because of which retention by time must wait."""

    offset: int
    """Nothing from this offset on is removed by its age."""
    until_ms: int
    """When the last of the records is old enough, by the wall clock."""


@dataclass(frozen=True, slots=True)
class LogReadResult:
    """Complete batches, and the log's offsets at the time of the read.

    For readers of committed records, `aborted` lists (producer id, first offset) of each aborted
    transaction in the batches.
    """

    batches: list[Batch]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]


class TopicLog:
    """Log of record batches of one partition. Belongs to the event loop that created it."""

    def __init__(
        self,
        ledger_list: LedgerList,
        topic: str,
        config: LogConfig,
        begin: TakenOver,
        on_failed: Callback,
    ) -> None:
        self.topic = topic
        self.key = ledger_list.key
        self._ledger_list = ledger_list
        name = f"{topic}-{ledger_list.key.partition}"
        self._appender = LogAppender(ledger_list, name, config, begin, on_failed)
        self._roller = self._appender.roller
        self._reader = LogReader(ledger_list, self._roller, begin.state)
        self.future: FutureRecords | None = None
        """Records that retention by time waited for when it was last enforced."""

    @classmethod
    async def take_over(
        cls,
        services: LogServices,
        topic: str,
        key: PartitionKey,
        epoch: int,
        config: LogConfig,
        *,
        on_failed: Callback = lambda: None,
    ) -> Self:
        """Claim a partition under a leader epoch, recover its last ledger, rebuild its state.

        `on_failed` is called once, when the log fails: `failure` is the reason, and the partition
        must be taken over under a new epoch. Raises TopicError FENCED_LEADER_EPOCH for an epoch
        that is not above every claimed one; LedgerError or MetadataError if it is not possible now.
        """
        ledger_list = await LedgerList.claim(services, key, epoch)
        begin = await rebuild(ledger_list, config)
        log = cls(ledger_list, topic, config, begin, on_failed)
        if begin.last is None or begin.is_partial:
            # A new partition then has replicas to show; a partial state is stored in a new ledger.
            log._roller.want_ledger()
        return log

    # -- properties ------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The epoch under which this broker leads."""
        return self._ledger_list.epoch

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._ledger_list.record.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._appender.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which every record is committed and may be read."""
        return self._appender.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every record is committed and its transaction, if any, decided."""
        return self._appender.state.last_stable_offset(self._appender.high_watermark)

    @property
    def replicas(self) -> tuple[BookieId, ...]:
        """The bookies of the newest ledger."""
        return self._roller.replicas

    @property
    def wanted_replicas(self) -> int:
        """Number of bookies that the newest ledger is to have; 0 before the first ledger."""
        return self._roller.wanted_replicas

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """The replicas that store everything up to the high watermark, are live, and do not lag."""
        return self._roller.in_sync

    @property
    def size_bytes(self) -> int:
        """Bytes of the listed ledgers; of the open ledger, the bytes written so far.

        Ledgers listed outside of the record count as of the last `measure` or retention.
        """
        listed = sum(segment.bytes or 0 for segment in self._ledger_list.record.segments)
        return self._ledger_list.older_bytes + listed + self._roller.written_bytes

    @property
    def ended_ledgers(self) -> list[LedgerId]:
        """The listed ledgers that have ended, oldest first. Those listed outside of the record are
        as of the last `measure` or retention.
        """
        return [part.ledger_id for part in self._ledger_list.known_segments if not part.is_open]

    async def measure(self) -> int:
        """Return the current `size_bytes`, including all older ledgers.

        Raises TopicError, MetadataError.
        """
        await self._ledger_list.segments()
        return self.size_bytes

    @property
    def config(self) -> LogConfig:
        """The log's settings."""
        return self._appender.config

    @property
    def failure(self) -> TopicError | None:
        """The failure that ended the log; None while it is usable."""
        return self._appender.failure

    def active_producers(self) -> list[ActiveProducer]:
        """Return the known producers."""
        return self._appender.state.active_producers()

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer's transaction is open in this partition."""
        return self._appender.state.is_open(producer_id, producer_epoch)

    def note_repaired(self, info: LedgerInfo) -> None:
        """Take what repair may have changed of an ended ledger."""
        self._roller.note_repaired(info)

    def set_config(self, config: LogConfig) -> None:
        """Use other settings from now on; a change of replication applies to the next ledger."""
        if config.quorum != self._appender.config.quorum:
            self._appender.wants_roll = True
        self._appender.config = self._roller.config = config

    # -- appending -------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether a batch can be appended without waiting."""
        return self._appender.has_room

    async def wait_for_room(self, size: int) -> None:
        """Wait until `size` more bytes can be admitted, or the log has failed."""
        await self._appender.wait_for_room(size)

    def append(
        self,
        header: RecordBatchHeader,
        data: bytes | bytearray | memoryview,
        *,
        coordinator_epoch: int | None = None,
        may_open: MayOpen = never_opens,
        waits_for_one: bool = False,
    ) -> asyncio.Future[Appended]:
        """Append one batch that was checked; return a future that is resolved once it is committed.

        With `waits_for_one`, the future is resolved once one bookie has stored the batch durably;
        the batch may still be lost. `data` must not change until the batch is committed. With
        `coordinator_epoch`, the batch is the marker of a transaction. `may_open` is asked when the
        batch is admitted, which may be later, behind markers that wait: it returns whether the
        coordinator's confirmation still holds, so that the batch may open a transaction.

        Raises TopicError, or the future fails with it: NOT_ENOUGH_REPLICAS if nothing was appended
        because replicas are missing, or the batch would open a transaction without a confirmation;
        KAFKA_STORAGE_ERROR if nothing was appended because no ledger
        has room; the codes of KIP-98 for sequences and epochs; NOT_LEADER_OR_FOLLOWER if the
        outcome is unknown, or another broker leads.
        """
        try:
            self._roller.require_room(ErrorCode.KAFKA_STORAGE_ERROR)
            return self._appender.append(
                header,
                data,
                coordinator_epoch=coordinator_epoch,
                may_open=may_open,
                waits_for_one=waits_for_one,
            )
        except TopicError as error:
            self.note_refused(header, error.code)
            raise

    def note_refused(self, header: RecordBatchHeader, code: ErrorCode) -> None:
        """Note that a batch was refused. If its producer is to send it again, later batches of the
        producer are refused until then.
        """
        self._appender.note_refused(header, code)

    def on_progress(self, callback: Callback) -> Callback:
        """Register a callback; return a function that removes it.

        It is called after the high watermark or the log's start moved, and when the log ends.
        """
        return self._appender.progress.add(callback)

    # -- reading ---------------------------------------------------------------------------------

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, at_least_one: bool
    ) -> LogReadResult:
        """Read complete batches from the one that contains `offset` or follows it.

        They end below the high watermark, or with `read_committed` below the last stable offset.
        They have at most `max_bytes` bytes, but with `at_least_one` the first is returned whatever
        its size. Raises TopicError OFFSET_OUT_OF_RANGE outside of log start to log end.
        """
        appender = self._appender
        appender.require_usable()
        self._require_within(offset)
        limit = self.last_stable_offset if read_committed else appender.high_watermark
        batches: list[Batch] = []
        if offset < limit:
            recent = appender.recent.read(offset, limit, max_bytes)
            if recent is None:
                batches = await self._reader.read(
                    offset, limit, max_bytes, at_least_one=at_least_one
                )
                # Retention may have dropped aborted transactions below a new log start.
                self._require_within(offset)
            else:
                batches = [*recent]
        if batches and not at_least_one and len(batches[0]) > max_bytes:
            batches = []
        aborted: list[tuple[int, int]] = []
        if batches and read_committed:
            end = read_header(batches[-1]).last_offset + 1
            state, high_watermark = appender.state, appender.high_watermark
            aborts, older = state.aborted_in(offset, end, high_watermark), state.older
            if older is not None and offset < older.end_offset:
                before = await self._reader.older_aborted(older, offset, end)
                aborts = [abort for abort in before if abort.last_offset < high_watermark] + aborts
            aborted = [(abort.producer_id, abort.first_offset) for abort in aborts]
        return LogReadResult(
            batches,
            appender.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            aborted,
        )

    def _require_within(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            ends = f"{self.log_start_offset} to {self.log_end_offset}"
            text = f"offset {offset} is out of range: use one of {ends}"
            raise TopicError(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    async def offset_for_timestamp(self, timestamp_ms: int) -> RecordPosition | None:
        """Return the first committed record with this time or a later one, or None."""
        self._appender.require_usable()
        start, limit = self.log_start_offset, self.high_watermark
        return await self._reader.offset_for_timestamp(timestamp_ms, start, limit)

    async def max_timestamp(self) -> RecordPosition | None:
        """Return the first committed record with the greatest time; None in an empty log."""
        self._appender.require_usable()
        return await self._reader.max_timestamp(self.log_start_offset, self.high_watermark)

    def end_offset_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above this one and its end offset; (-1, -1) if unknown."""
        self._appender.require_usable()
        return self._appender.state.epochs.end_of_epoch(epoch, self.high_watermark)

    # -- trimming --------------------------------------------------------------------------------

    async def delete_records(self, before_offset: int) -> int:
        """Move the log's start to an offset, or for -1 to the high watermark; return the start.

        Raises TopicError OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION for a
        topic that is only compacted, KAFKA_STORAGE_ERROR if the metadata service does not answer.
        """
        self._appender.require_usable()
        if not self.config.is_deletable:
            text = (
                "records of this topic cannot be deleted, because its cleanup.policy lacks delete: "
                "add it first (compact,delete if the policy is compact)"
            )
            raise TopicError(ErrorCode.POLICY_VIOLATION, text)
        offset = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= self.high_watermark:
            text = (
                f"offset {offset} is out of range: use 0 to {self.high_watermark}, the high "
                "watermark, or -1 for all records"
            )
            raise TopicError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        try:
            await self._begin_at(offset)
        except MetadataError as error:
            text = f"the log's start cannot be stored now, retry: {error}"
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
        return self.log_start_offset

    async def enforce_retention(self, now_ms: int) -> int:
        """Delete ledgers beyond the retention settings; return how many were deleted."""
        appender, roller = self._appender, self._roller
        config, ledger = appender.config, roller.ledger
        appender.require_usable()
        appender.state.expire_producers(now_ms, PRODUCER_EXPIRATION_MS)
        if ledger is not None and ledger.record_bytes:
            is_short = ledger.writer.admission.quorum.ensemble_size < config.quorum.ensemble
            if is_short or is_aged(ledger.segment, ledger.max_timestamp_ms, config, now_ms):
                appender.wants_roll = True
            appender.roll_if_due()
        newest_ms = None if ledger is None else ledger.max_timestamp_ms
        segments = [  # an open ledger counts with what was written so far
            replace(segment, bytes=roller.written_bytes, max_timestamp_ms=newest_ms)
            if segment.is_open
            else segment
            for segment in await self._ledger_list.segments()
        ]
        self._note_future(future_records(segments, config, now_ms))
        await self._begin_at(retained_from(segments, config, self.log_start_offset, now_ms))
        try:
            return await self._ledger_list.drop_below(self.log_start_offset, roller.has_state)
        except TopicError as error:
            raise self._appender.fail(error.text) from error

    def _note_future(self, future: FutureRecords | None) -> None:
        if future is not None and self.future is None:
            _log.warning(
                "retention waits for times in the future log=%s-%s offset=%s until_ms=%s",
                self.topic,
                self.key.partition,
                future.offset,
                future.until_ms,
            )
        self.future = future

    async def _begin_at(self, offset: int) -> None:
        """Move the log's start up to an offset; this completes even if the caller is cancelled.

        State below the offset is dropped. Raises TopicError if the log ends, MetadataError.
        """
        if offset > self.log_start_offset:
            await self._ledger_list.run_to_end(self._store_start(offset))

    async def _store_start(self, offset: int) -> None:
        try:
            await self._ledger_list.change(lambda record: record.with_log_start(offset))
        except TopicError as error:
            raise self._appender.fail(error.text) from error
        self._appender.state.drop_below(offset)
        self._appender.progress.notify()

    # -- ending ----------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Hand the partition over: wait up to DRAIN_S for admitted batches, then close the ledger.

        The end of the ledger is listed. A second call, or a call after a failure, only releases
        resources.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * DRAIN_S):
                await self._roller.end(DRAIN_S)
        self._appender.fail("another broker will lead this partition", notifies_owner=False)
        await self._roller.aclose()
        await self._reader.aclose()


def retained_from(
    segments: Sequence[PartitionSegment], config: LogConfig, log_start_offset: int, now_ms: int
) -> int:
    """Return the offset at which the log must begin; at least its current start.

    Complete ledgers are removed, oldest first; the newest one stays; a ledger without records does
    not keep older ones.
    """
    start = log_start_offset
    total = sum(partition_segment.bytes or 0 for partition_segment in segments)
    for segment in segments[:-1]:
        if segment.end_offset is None:
            break
        size = segment.bytes or 0
        if not _is_too_old(segment, config, now_ms) and not _is_too_much(total - size, config):
            break
        start = max(start, segment.end_offset)
        total -= size
    return start


def future_records(
    segments: Sequence[PartitionSegment], config: LogConfig, now_ms: int
) -> FutureRecords | None:
    """Return the records whose times are more than FUTURE_MS ahead, if retention is by time."""
    newest_ms = NO_TIMESTAMP
    offset: int | None = None
    for segment in segments:
        segment_ms = segment.max_timestamp_ms
        if segment_ms is not None and segment_ms > now_ms + FUTURE_MS:
            newest_ms = max(newest_ms, segment_ms)
            offset = segment.base_offset if offset is None else offset
    if offset is None or config.retention_ms is None:
        return None
    return FutureRecords(offset, newest_ms + config.retention_ms)


def is_aged(
    segment: PartitionSegment, max_timestamp_ms: int, config: LogConfig, now_ms: int
) -> bool:
    """Return whether all records of the newest ledger are too old, so that the log must roll."""
    return config.retention_ms is not None and (
        now_ms - max(segment.created_ms, max_timestamp_ms) > config.retention_ms
    )


def _is_too_old(segment: PartitionSegment, config: LogConfig, now_ms: int) -> bool:
    if config.retention_ms is None:
        return False
    newest_ms = segment.max_timestamp_ms
    if newest_ms is None or newest_ms < 0:
        newest_ms = segment.created_ms
    return now_ms - newest_ms > config.retention_ms


def _is_too_much(left_bytes: int, config: LogConfig) -> bool:
    """Return whether `left_bytes`, the log without a ledger, reaches the limit, as in Kafka."""
    return config.retention_bytes is not None and left_bytes >= config.retention_bytes

"""Durable state of a coordinator: records in ledgers, each of which begins with a snapshot.

Leaves the meaning of records to the coordinators, the choice of the ledger to `ledger_roller`, and
claiming the partition and recovering its last ledger to `ledger_list`.

While the log rolls to the next ledger, records wait. The snapshot contains them, as the state in
memory does, so it stores them too: they are not appended after it. The mark that ends the snapshot
is the last entry of it, because the mark alone makes the ledger count.

Format: an entry is one byte and a record. `S` is a part of the snapshot; `E` is its end, without a
record; `R` is a change after the snapshot. The snapshot is the whole state: nothing before it is
needed, and no change after `E` is older than it. A ledger without `E` was cut off at its beginning:
the ledger before it counts.

Invariants: the caller changes its state and appends the record of the change without an `await`
between them; futures of `append` are resolved only when their records are committed, in order; an
older ledger is deleted only when the snapshot that replaces it is committed; after a failure
nothing is appended, and the coordinator's partition is taken over again. Nothing is loaded before
the end of the newest ledger is listed; records of only one ledger are loaded, in their order, and
other work of the loop runs meanwhile.

Source: topics design, "State entries", "The mapping" (groups, transactions); protocol rule 11.6.
"""

import asyncio
import contextlib
import logging
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol, Self

from broker_layer.errors import TopicError
from broker_layer.handlers import Turns, slices
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.ledger_list import LeadCheck, LedgerList
from broker_layer.log.ledger_roller import LedgerRoller, OpenLedger
from broker_layer.log.log_services import DRAIN_S, LogServices
from broker_layer.log.log_takeover import READ_BYTES, is_unreadable
from broker_layer.log.pending_batches import refuse
from broker_layer.log.segment_reading import SegmentReaders
from broker_layer.log.topic_configs import LogConfig
from ledger_client.errors import BackpressureError, LedgerError, NotEnoughInSyncReplicasError
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError
from metadata.ids import EntryId
from metadata.topics.partition import PartitionRecord, PartitionSegment
from metadata.topics.partition_store import PartitionKey

SNAPSHOT: Final = b"S"
SNAPSHOT_END: Final = b"E"
CHANGE: Final = b"R"
WAITING_RECORDS_MAX: Final = 200_000
"""Maximum number of records that wait to be appended."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum number of bytes of these, one record more: callers may have left while they wait."""
RETRY_S: Final = 0.1
log = logging.getLogger(__name__)


class DurableLog(Protocol):
    """The records of one state partition, in order (`state_log.StateLog`)."""

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this broker leads the partition."""

    @property
    def lead_refusal(self) -> TopicError | None:
        """Why this broker may not answer for the partition now; None if it may."""

    async def confirm_lead(self) -> None:
        """Return once it is certain that no other broker had taken the partition over before this
        call. Raises TopicError: NOT_COORDINATOR if one had, COORDINATOR_LOAD_IN_PROGRESS if that is
        not known.
        """

    def append(self, record: bytes) -> Future[None]:
        """Append in order; the future is done when the record is durable. Raises TopicError if
        the log does not accept it.
        """

    async def aclose(self) -> None:
        """Close the log in order."""


class OpenDurableLog(Protocol):
    """Function that takes a state partition over, in its present epoch."""

    async def __call__(
        self,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> DurableLog:
        """Replay all records through `load`, and open the log."""


class _Pending(NamedTuple):
    """A record that a writer has and that is not committed."""

    answer: asyncio.Future[None]
    writer: LedgerWriter
    entry_id: EntryId


class StateLog:
    """The durable state of one coordinator partition, under one leader epoch."""

    def __init__(
        self,
        ledger_list: LedgerList,
        config: LogConfig,
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
        has_lapsed: Callable[[], bool],
    ) -> None:
        self._ledger_list = ledger_list
        self._snapshot = snapshot
        self._on_failed = on_failed
        self._has_lapsed = has_lapsed
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        """Records that no writer has."""
        self._waiting_bytes = 0
        self._pending: deque[_Pending] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._roller = LedgerRoller(self, ledger_list, config, fill=self._fill)
        self._check = LeadCheck(ledger_list)
        self.failure: TopicError | None = None

    @classmethod
    async def take_over(
        cls,
        services: LogServices,
        key: PartitionKey,
        epoch: int,
        config: LogConfig,
        *,
        load: Callable[[bytes], None],
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
        has_lapsed: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Claim the partition, and pass every record to `load`, in order.

        `snapshot` must return records that make up the state at the time of the call, with the
        changes of every appended record. `has_lapsed` returns whether another broker may lead
        the partition now. Raises TopicError, LedgerError or MetadataError if the partition cannot
        be taken over now.
        """
        ledger_list = await LedgerList.claim(services, key, epoch)
        is_whole = await load_state(ledger_list, load, config)
        log = cls(ledger_list, config, snapshot, on_failed, has_lapsed)
        if not is_whole:  # store a snapshot, so that the next leader finds the present state
            log._roller.want_ledger()
        return log

    @property
    def leader_epoch(self) -> int:
        """See `DurableLog`."""
        return self._ledger_list.epoch

    @property
    def lead_refusal(self) -> TopicError | None:
        """See `DurableLog`."""
        if self.failure is None and self._has_lapsed():
            text = "the session of this broker has lapsed: find the coordinator again"
            return TopicError(ErrorCode.NOT_COORDINATOR, text)
        return self.failure

    async def confirm_lead(self) -> None:
        """See `DurableLog`."""
        if not await self._check.leads():
            self.fail("another broker has claimed this partition")
        if self.failure is not None:
            raise self.failure

    @property
    def log_end_offset(self) -> int:
        """The number of entries that were written, those of snapshots included."""
        newest, last = self._roller.newest, self._ledger_list.record.last_segment
        if newest is not None:
            return newest.segment.base_offset + newest.writer.admission.next_entry_id
        return 0 if last is None or last.end_offset is None else last.end_offset

    def append(self, record: bytes) -> asyncio.Future[None]:
        """Append a record; return a future that is resolved once it is committed.

        Raises TopicError: NOT_COORDINATOR after a failure, COORDINATOR_NOT_AVAILABLE if too many
        records wait, or the ledger has grown to its limit.
        """
        if self.failure is not None:
            raise self.failure
        count, size = len(self._waiting), self._waiting_bytes
        if count >= WAITING_RECORDS_MAX or size >= WAITING_BYTES_MAX:
            text = f"{count} records with {size} B wait to be stored; try again later"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        self._roller.require_room(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((bytes(record), answer))
        self._waiting_bytes += len(record)
        self._flush()
        return answer

    async def aclose(self) -> None:
        """Wait up to DRAIN_S for appended records, and close the ledger."""
        with contextlib.suppress(TopicError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                if answers := self._answers():
                    await asyncio.shield(answers[-1])
                await self._roller.end(DRAIN_S)
        self.fail("the coordinator moved", notifies_owner=False)
        await self._roller.aclose()

    # -- appending -------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Give waiting records to the writer, or begin a ledger first."""
        if self.failure is not None or not self._waiting:
            return
        self._roller.roll_if_due()
        ledger = self._roller.ledger
        if ledger is None:
            self._roller.want_ledger()
            return
        while self._waiting:
            data, answer = self._waiting[0]
            try:
                entry_id = ledger.writer.append_followed(CHANGE + data)
                self._pending.append(_Pending(answer, ledger.writer, entry_id))
            except (BackpressureError, NotEnoughInSyncReplicasError):
                self._flush_later()
                return
            except LedgerError as error:
                self.fail(str(error))
                return
            except Exception as error:  # the record may be written, and must not be written again
                log.exception("a coordinator's record cannot be appended")
                self.fail(f"an append failed inside the broker ({type(error).__name__}: {error})")
                return
            self._take_waiting()
            ledger.written_bytes += len(data) + 1
            ledger.record_bytes += len(data) + 1

    def _take_waiting(self) -> asyncio.Future[None]:
        """Remove the first record that waits; return its future."""
        data, answer = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        return answer

    def _flush_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._flush_again)

    def _flush_again(self) -> None:
        self._retry = None
        self._flush()

    def _note_progress(self, error: LedgerError | None) -> None:
        """Resolve the futures of committed records, or fail if the writer has failed."""
        while self._pending and self._pending[0].entry_id <= self._pending[0].writer.last_confirmed:
            _resolve(self._pending.popleft().answer)
        if error is not None and self._pending:
            self.fail(str(error))
            return
        self._flush()

    # -- ledgers ---------------------------------------------------------------------------------

    async def _fill(self, writer: LedgerWriter) -> None:
        """Write a snapshot into the next ledger, which is listed; then delete the older ones.

        The snapshot contains the changes of the records that wait, so it also stores these.
        """
        count = len(self._waiting)
        entries = [SNAPSHOT + part for part in self._snapshot()]
        await writer.append_many([*entries, SNAPSHOT_END])
        for _ in range(count):
            _resolve(self._take_waiting())
        last = self._ledger_list.record.last_segment
        assert last is not None, "the next ledger is listed"
        try:
            await self._ledger_list.drop_below(last.base_offset)
        except (LedgerError, MetadataError) as error:  # the next ledger's beginning deletes them
            log.info("older ledgers of a coordinator will be deleted later: %s", error)

    def begin_ledger(self, ledger: OpenLedger) -> None:
        """Follow the ledger that records go to from now on."""
        ledger.writer.follow(self._note_progress)

    def resume(self) -> None:
        """Append the records that waited for a ledger."""
        self._flush()

    def refuse_deferred(self, error: TopicError) -> None:
        """End the log, which cannot begin a ledger."""
        self.fail(error.text)

    def fail(self, text: str, *, notifies_owner: bool = True) -> None:
        """End the log: uncommitted records fail, and the owner takes the partition over again."""
        if self.failure is not None:
            return
        self.failure = TopicError(ErrorCode.NOT_COORDINATOR, text)
        for answer in self._answers():
            refuse(answer, self.failure)
        self._pending.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._retry is not None:
            self._retry.cancel()
        self._roller.abandon()
        if notifies_owner:
            self._on_failed()

    def _answers(self) -> list[asyncio.Future[None]]:
        """Return the futures of the records that are not committed, in order."""
        return [write.answer for write in self._pending] + [answer for _, answer in self._waiting]


def _resolve(answer: asyncio.Future[None]) -> None:
    if not answer.done():  # else the caller no longer waits
        answer.set_result(None)


async def load_state(
    ledger_list: LedgerList, load: Callable[[bytes], None], config: LogConfig
) -> bool:
    """End the ledger that an earlier leader left open, and load the newest complete snapshot.

    Returns False if a part of the state could not be read, and an operator allowed the loss. Raises
    TopicError, LedgerError or MetadataError if the state cannot be loaded now.
    """
    is_requested = ledger_list.is_unclean_requested(config)
    info = await ledger_list.end_last(config)
    last = ledger_list.record.last_segment
    if is_requested or (last is not None and last.is_open):
        last_id = -1 if info is None else info.last_entry_id
        assert last_id is not None, "it is closed"
        size = 0 if info is None else info.length or 0
        await ledger_list.change(lambda record: _begun(record, ledger_list.epoch, last_id, size))
    readers = SegmentReaders(ledger_list.services.client)
    loading = _Loading(readers, load)
    is_whole = True
    try:
        for segment in reversed(ledger_list.record.segments):
            try:
                if await loading.load(segment):
                    break
            except TopicError as error:
                if not is_requested or not is_unreadable(error):
                    raise
                log.warning("a coordinator continues without a part of its state: %s", error.text)
                is_whole = False
                if loading.has_loaded:  # older ledgers contain older state
                    break
    finally:
        await readers.aclose()
    return is_whole


def _begun(record: PartitionRecord, epoch: int, last_id: int, size: int) -> PartitionRecord:
    """Return the list with the end of the newest ledger, and the epoch that begins there."""
    last = record.last_segment
    if last is None:
        return record.with_epoch_start(epoch, 0)
    end = last.base_offset + last_id + 1 if last.end_offset is None else last.end_offset
    if last.is_open:
        record = record.with_segment_ended(last.ledger_id, end, size, None)
    return record.with_epoch_start(epoch, end)


class _Loading:
    """The loading of one partition's state."""

    def __init__(self, readers: SegmentReaders, load: Callable[[bytes], None]) -> None:
        self._readers = readers
        self._load = load
        self.has_loaded = False
        """Whether a complete snapshot was found."""

    async def load(self, segment: PartitionSegment) -> bool:
        """Load one ledger if its snapshot is complete; return whether it is. Raises TopicError."""
        assert segment.end_offset is not None
        last = segment.end_offset - segment.base_offset - 1
        snapshot, changes = list[bytes](), list[bytes]()
        next_id = 0
        while next_id <= last:
            entries = await self._readers.read(segment.ledger_id, next_id, last, READ_BYTES)
            for entry_id, data in entries:
                kind, record = bytes(data[:1]), bytes(data[1:])
                if self.has_loaded:
                    changes.append(record)
                elif kind == SNAPSHOT_END:
                    self.has_loaded = True
                    await self._load_all(snapshot)
                    snapshot.clear()
                else:
                    snapshot.append(record)
                next_id = entry_id + 1
            await self._load_all(changes)
            changes.clear()
        return self.has_loaded

    async def _load_all(self, records: list[bytes]) -> None:
        """Load records; there may be hundreds of thousands, of some microseconds each."""
        turns = Turns()
        for some in slices(records):
            for record in some:
                self._load(record)
            await turns.pass_on()

"""Durable state of a coordinator: records in ledgers, each of which begins with a snapshot.

Leaves the meaning of records to the coordinators, the list of ledgers to `ledger_list`, and the
format of entries and their loading to `state_loading`.

A record states a value, not a change. Applying it twice, or again together with all later ones,
gives the same state. So records that were appended while a snapshot was made may be appended again
after it.

The next ledger is created before the full one is closed. While that is not possible, the old ledger
grows, by at most `growth_bytes_max`.

Invariants: futures of `append` are resolved only when their records are committed, in order; an
older ledger is deleted only when the snapshot that replaces it is committed; after a failure
nothing is appended, and the coordinator's partition is taken over again.

Source: topics design, "State entries", "The mapping" (groups, transactions).
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.ledger_closing import change_until_stored, close_ledger
from broker_layer.log.ledger_list import LedgerList, Transition
from broker_layer.log.log_services import LogServices
from broker_layer.log.next_ledger import NextLedger
from broker_layer.log.settings.log_config import LogConfig
from broker_layer.log.state_loading import CHANGE, SNAPSHOT, SNAPSHOT_END, load_state
from ledger_client.errors import BackpressureError, LedgerError, NotEnoughInSyncReplicasError
from ledger_client.info import LedgerInfo
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError, StoreClosedError
from metadata.ids import NO_ENTRY, BookieId, EntryId
from metadata.topics.partition_store import PartitionKey

WAITING_RECORDS_MAX: Final = 200_000
"""Maximum number of records that wait to be appended."""
CARRIED_RECORDS: Final = 256
"""Number of committed records that are repeated after a snapshot: the tasks that waited for them
may not have run when it was made."""
RETRY_S: Final = 0.1
DRAIN_S: Final = 10.0
NOT_GIVEN: Final = EntryId(NO_ENTRY)


log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Record:
    """One record that is not committed. `entry_id` is NOT_GIVEN until the writer has it."""

    data: bytes
    answer: asyncio.Future[None]
    entry_id: EntryId = NOT_GIVEN


class StateLog:
    """The durable state of one coordinator partition, under one leader epoch."""

    def __init__(
        self,
        ledger_list: LedgerList,
        config: LogConfig,
        snapshot: Callable[[], Iterable[bytes]],
        on_failed: Callable[[], None],
    ) -> None:
        self._ledger_list = ledger_list
        self._config = config
        self._snapshot = snapshot
        self._on_failed = on_failed
        self._writer: LedgerWriter | None = None
        self._written_bytes = 0
        self._waiting: deque[_Record] = deque()
        self._pending: deque[_Record] = deque()
        self._recent: deque[bytes] = deque(maxlen=CARRIED_RECORDS)
        self._beginning: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._next = NextLedger(ledger_list)
        self._preparing: asyncio.Task[None] | None = None
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
    ) -> Self:
        """Claim the partition, and pass every record to `load`, in order.

        `snapshot` must return records that make up the state at the time of the call. Raises
        TopicError, LedgerError or MetadataError if the partition cannot be taken over now.
        """
        ledger_list = await LedgerList.claim(services, key, epoch)
        is_whole = await load_state(ledger_list, load, config)
        log = cls(ledger_list, config, snapshot, on_failed)
        if not is_whole:  # store a snapshot, so that the next leader finds the present state
            log._beginning = asyncio.get_running_loop().create_task(log._begin())
        return log

    @property
    def leader_epoch(self) -> int:
        """The epoch under which this broker leads the partition."""
        return self._ledger_list.epoch

    @property
    def replicas(self) -> tuple[BookieId, ...]:
        """The bookies of the newest ledger; empty if this leader has begun none."""
        return () if self._writer is None else self._writer.members

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """The replicas that store every committed record, are live, and do not lag."""
        if self._writer is not None and self._writer.quorum.is_in_sync:
            return self._writer.in_sync
        return self.replicas

    def append(self, record: bytes) -> asyncio.Future[None]:
        """Append a record; return a future that is resolved once it is committed.

        Raises TopicError: NOT_COORDINATOR after a failure, COORDINATOR_NOT_AVAILABLE if too many
        records wait, or the ledger has grown to its limit.
        """
        if self.failure is not None:
            raise self.failure
        if len(self._waiting) >= WAITING_RECORDS_MAX:
            text = f"{WAITING_RECORDS_MAX} records wait to be stored; try again later"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        if self._is_overgrown and self._beginning is None:
            self._roll()
        if self._is_overgrown and self._beginning is None:
            text = f"the ledger has {self._written_bytes} B, which is its limit, and no next ledger"
            text += " can be created now"
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Record(bytes(record), answer))
        self._flush()
        return answer

    async def aclose(self) -> None:
        """Wait up to DRAIN_S for appended records, and close the ledger."""
        with contextlib.suppress(TopicError, TimeoutError, LedgerError, MetadataError):
            async with asyncio.timeout(DRAIN_S):
                last = self._waiting[-1] if self._waiting else None
                last = last or (self._pending[-1] if self._pending else None)
                if last is not None and self.failure is None:
                    await asyncio.shield(last.answer)
                if self._writer is not None and self.failure is None:
                    _, transition = self._end_of(await self._close(self._writer))
                    await self._ledger_list.change(transition)
                    self._writer = None
        left = [each for each in (self._beginning, self._preparing) if each is not None]
        self._fail("the coordinator moved", notifies_owner=False)
        await asyncio.gather(*left, return_exceptions=True)
        await self._ledger_list.aclose()

    # -- appending -------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Give waiting records to the writer, or begin a ledger first."""
        if self._beginning is not None or self.failure is not None or not self._waiting:
            return
        if self._writer is None or self._written_bytes >= self._config.segment_bytes:
            self._roll()
        if self._writer is None or self._beginning is not None:
            return
        while self._waiting:
            record = self._waiting[0]
            try:
                stored = self._writer.append_nowait(CHANGE + record.data)
            except (BackpressureError, NotEnoughInSyncReplicasError):
                self._flush_later()
                return
            except LedgerError as error:
                self._fail(str(error))
                return
            self._waiting.popleft()
            record.entry_id = self._writer.last_pushed
            self._written_bytes += len(record.data) + 1
            self._pending.append(record)
            stored.add_done_callback(self._on_stored)

    def _roll(self) -> None:
        """Begin the next ledger if it is created, or if there is none yet; otherwise create it."""
        loop = asyncio.get_running_loop()
        if self._next.is_ready(self._config.quorum) or self._writer is None:
            self._beginning = loop.create_task(self._begin())
        elif self._preparing is None:
            self._preparing = loop.create_task(self._prepare())

    def _flush_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._flush_again)

    def _flush_again(self) -> None:
        self._retry = None
        self._flush()

    def _on_stored(self, stored: asyncio.Future[int]) -> None:
        error = None if stored.cancelled() else stored.exception()
        if self._writer is None or self.failure is not None:
            return
        if error is not None or stored.cancelled():
            self._fail(str(error or "an append was cancelled"))
            return
        confirmed = self._writer.last_confirmed
        while self._pending and self._pending[0].entry_id <= confirmed:
            record = self._pending.popleft()
            self._recent.append(record.data)
            if not record.answer.done():
                record.answer.set_result(None)
        if not self._pending or self._waiting:
            self._flush()

    # -- ledgers ---------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Begin the next ledger with a snapshot; `append` queues records during this."""
        try:
            repeated = [*self._recent, *(record.data for record in self._pending)]
            old, writer = self._writer, self._next.take()
            if writer is None:
                writer = await self._ledger_list.create_writer(self._config.quorum)
            base = await self._list(writer, old)
            self._writer = writer
            entries = [SNAPSHOT + part for part in self._snapshot()]
            entries += [SNAPSHOT_END, *(CHANGE + each for each in repeated)]
            self._written_bytes = 0
            await writer.append_many(entries)
            await self._drop_below(base)
        except (LedgerError, MetadataError, TopicError) as error:
            self._fail(f"no ledger can be begun: {error}")
        except Exception as error:  # callers that wait for the ledger must receive the failure
            log.exception("a ledger cannot be begun")
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self._beginning = None
        self._flush()

    async def _list(self, writer: LedgerWriter, old: LedgerWriter | None) -> int:
        """List the end of the old ledger, if any, and the new ledger, in one change.

        Returns the base offset of the new ledger.
        """
        is_tried = False
        try:
            last = self._ledger_list.record.last_segment
            base = 0 if last is None or last.end_offset is None else last.end_offset
            ended: Transition | None = None
            if old is not None:
                await self._drain()
                base, ended = self._end_of(await self._close(old))
            segment = self._ledger_list.new_segment(writer.id, base)
            is_tried = True
            if ended is None:
                await self._ledger_list.change(lambda record: record.with_segment(segment))
            else:
                await change_until_stored(
                    self._ledger_list, lambda record: ended(record).with_segment(segment)
                )
        except BaseException as error:
            is_written = not isinstance(error, MetadataError) or isinstance(error, StoreClosedError)
            # If the ledger may be listed, the next leader would find it: it must not be deleted.
            self._ledger_list.end_later(writer, is_listed=is_tried and is_written)
            raise
        return base

    async def _drain(self) -> None:
        while self._pending:
            await asyncio.shield(self._pending[-1].answer)

    async def _close(self, writer: LedgerWriter) -> LedgerInfo:
        return await close_ledger(self._ledger_list.services.client, writer)

    def _end_of(self, info: LedgerInfo) -> tuple[int, Transition]:
        """Return the end offset of the newest, closed ledger, and the change that lists it."""
        last = self._ledger_list.record.last_segment
        assert last is not None
        assert last.ledger_id == info.id
        assert info.last_entry_id is not None
        end, size = last.base_offset + info.last_entry_id + 1, info.length or 0
        return end, lambda record: record.with_segment_ended(last.ledger_id, end, size, None)

    async def _drop_below(self, base: int) -> None:
        """Delete older ledgers; if that fails, the next ledger's beginning deletes them."""
        try:
            await self._ledger_list.drop_below(base)
        except (LedgerError, MetadataError) as error:
            log.info("older ledgers of a coordinator will be deleted later: %s", error)

    async def _prepare(self) -> None:
        try:
            await self._next.create(self._config.quorum)
        finally:
            self._preparing = None
        self._flush()

    @property
    def _is_overgrown(self) -> bool:
        bytes_max = self._config.segment_bytes + self._ledger_list.services.growth_bytes_max
        return self._written_bytes >= bytes_max

    def _fail(self, text: str, *, notifies_owner: bool = True) -> None:
        """End the log: uncommitted records fail, and the owner takes the partition over again."""
        if self.failure is not None:
            return
        self.failure = TopicError(ErrorCode.NOT_COORDINATOR, text)
        for records in (self._pending, self._waiting):
            while records:
                answer = records.popleft().answer
                if not answer.done():
                    answer.set_exception(self.failure)
                    answer.exception()  # mark it as retrieved: the caller may no longer wait
        if self._retry is not None:
            self._retry.cancel()
        for task in (self._beginning, self._preparing):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._writer is not None:
            self._ledger_list.end_later(self._writer, is_listed=True)
        self._next.abandon()
        self._writer = None
        if notifies_owner:
            self._on_failed()
